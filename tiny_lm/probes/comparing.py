"""Chapter 09: the comparison of all designs, as jobs that can be stopped and gone on with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tiny_lm.probes import clock, designs
from tiny_lm.probes.designs import DESIGNS, SEEDS
from tiny_lm.probes.training import HALFWAY
from tiny_lm.shapes import fail

BASE = "pre"  # what every design is compared with
LR = 3e-3  # the learning rate of the loss after a fixed budget


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured: at LR, then at higher rates until a seed does not survive.

    Where one does not survive LR itself, at `lower`.
    """

    blocks: int
    steps: int
    lower: float
    higher: tuple[float, ...]
    depths: tuple[int, ...]  # blocks of the models that are looked at before training
    rounds: int  # of the clock

    @property
    def settings(self) -> str:
        """All of it in words; results with other settings are not mixed with these."""
        rates = ", ".join(f"{rate:g}" for rate in (self.lower, LR, *self.higher))
        depths = ", ".join(map(str, self.depths))
        return (
            f"Letters, V = 32, D = 32, H = 2, F = 64, eps 1e-5, untied, float32; {self.blocks} "
            f"blocks, {self.steps} steps of 16 rows of 16 letters, AdamW, no warm-up, lr {rates}; "
            f"before training {depths} blocks; clock: 4 blocks, D = 128, 4 rows of 64, "
            f"{self.rounds} rounds"
        )

    def jobs(self, names: Sequence[str], known: Mapping[str, Any]) -> list[str]:
        """What is still to be measured, as far as can be told by now."""
        wanted = [start_key(n, blocks, s) for blocks in self.depths for n in names for s in SEEDS]
        for name in names:
            for rate in (LR, *self.higher):
                runs = [train_key(name, rate, seed) for seed in SEEDS]
                wanted += runs
                if any(run in known and not survives(known[run]) for run in runs):
                    if rate == LR:
                        wanted += [train_key(name, self.lower, seed) for seed in SEEDS]
                    break
        return [key for key in [*wanted, times_key(names)] if key not in known]

    def results(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the results in a file that have the form that `measure` gives to them.

        The others, in a file that was damaged, are measured again.
        """
        rates, seeds = (self.lower, LR, *self.higher), SEEDS
        runs = {train_key(name, r, s) for name in DESIGNS for r in rates for s in seeds}
        starts = {start_key(name, n, s) for name in DESIGNS for n in self.depths for s in seeds}
        return {
            key: result
            for key, result in found.items()
            if (key in runs and _is_one(result, designs.Trained))
            or (key in starts and _is_start(result))
            or (key.partition(" ")[0] == "times" and _are_times(key, result))
        }

    def measure(self, key: str, names: Sequence[str]) -> Any:
        """The result of one job, ready for a JSON file."""
        if key == times_key(names):
            return self._times(names)
        name, kind, *_, said = key.split()
        seed = int(said.removeprefix("seed="))
        if kind.startswith("blocks="):
            blocks = int(kind.removeprefix("blocks="))
            return _rounded(asdict(designs.start(DESIGNS[name], seed=seed, blocks=blocks)))
        rate = float(kind.removeprefix("lr="))
        found = designs.trained(
            DESIGNS[name], lr=rate, seed=seed, blocks=self.blocks, steps=self.steps
        )
        return _rounded(asdict(found))

    def _times(self, names: Sequence[str]) -> dict[str, list[float]]:
        """Time of a step relative to the base's: quartiles and median."""
        timed = list(dict.fromkeys([BASE, *names]))
        found = clock.in_turns([designs.step_of(DESIGNS[name]) for name in timed], self.rounds)
        return {
            name: _rounded(clock.ratio(times, found[0]))
            for name, times in zip(timed, found, strict=True)
        }


FULL = Plan(
    blocks=6, steps=100, lower=1e-3, higher=(0.03, 0.1, 0.3), depths=(4, 8, 16, 32), rounds=16
)
QUICK = Plan(blocks=2, steps=40, lower=1e-3, higher=(0.03,), depths=(4,), rounds=2)


def train_key(name: str, rate: float, seed: int) -> str:
    """The name of a training run in the file."""
    return f"{name} lr={rate:g} seed={seed}"


def start_key(name: str, blocks: int, seed: int) -> str:
    """The name in the file of a look at a model before training."""
    return f"{name} blocks={blocks} seed={seed}"


def times_key(names: Sequence[str]) -> str:
    """The name of the clock's results in the file; they belong to the designs timed together."""
    return "times" if list(names) == list(DESIGNS) else "times " + ",".join(names)


def survives(found: Mapping[str, float]) -> bool:
    """Whether a run ended below halfway between ln V and the floor, as in chapter 06."""
    return found["loss"] < HALFWAY


def expect_names(names: Sequence[str]) -> list[str]:
    """The names, each once. Raises ValueError for one that is no design."""
    for name in names:
        if name not in DESIGNS:
            fail("compare", f"designs among {', '.join(DESIGNS)}", repr(name))
    return list(dict.fromkeys(names))


def _is_one(found: Any, form: type) -> bool:
    """Whether what a file holds has the fields of a dataclass, each of its type."""
    types = {field.name: field.type for field in fields(form)}
    return (
        isinstance(found, dict)
        and found.keys() == types.keys()
        and all(_FORMS[kind](found[name]) for name, kind in types.items())
    )


def _are_numbers(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(number, float) for number in found)


_FORMS: dict[str, Callable[[Any], bool]] = {
    "float": lambda found: isinstance(found, float),
    "int": lambda found: isinstance(found, int),
    "list[float]": _are_numbers,
}


def _is_start(found: Any) -> bool:
    """One more of the stream than of the blocks, of which there is one at least."""
    return (
        _is_one(found, designs.Start)
        and len(found["stream"]) == len(found["gradient"]) + 1
        and bool(found["gradient"])
    )


def _are_times(key: str, found: Any) -> bool:
    named = key.partition(" ")[2].split(",") if " " in key else list(DESIGNS)
    return (
        isinstance(found, dict)
        and set(named) <= set(found)
        and all(_are_numbers(times) and len(times) == 3 for times in found.values())
    )


def _rounded(value: Any) -> Any:
    """Five significant digits are more than three seeds can tell."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value if isinstance(value, int) else float(f"{value:.5g}")
