"""Chapter 06: claims on depth, warm-up and initialisation, tried on the stored runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from textwrap import wrap

from tiny_lm.probes import court
from tiny_lm.probes.training import FLOOR, HALFWAY, LAST, LN_V, SEEDS, TABLE, Run, stored_results

RULE = (
    f"A run trains if the mean loss of its last {LAST} steps is below {HALFWAY:.2f} nats, halfway "
    "between ln V and the floor; one that is only slow counts as not training. "
    f"A setting agrees when all {len(SEEDS)} seeds do what the claim "
    "says, disagrees when none does, and is open otherwise. All agree: holds. All disagree: does "
    "not hold. Both occur: holds if, open settings named. Otherwise: not settled here."
)


@dataclass(frozen=True)
class Claim:
    """A sentence, and settings of which it says that they train (or, if not `trains`, do not)."""

    sentence: str
    settings: dict[str, Run]
    trains: bool = True


def _at(order: str, init: str = "fan_in", **more: float) -> Run:
    """16 blocks, 32 layers."""
    return Run(order=order, blocks=16, init=init, **{"lr": 1e-3} | more)


def _deep(init: str, **more: float) -> Run:
    """64 blocks, 128 layers, in pre-norm."""
    return Run(order="pre", blocks=64, lr=3e-3, init=init, **more)


CLAIMS = (
    Claim(
        "Pre-norm trains 128 layers (64 blocks) from the first step.",
        {
            "fan-in": _deep("fan_in"),
            "normal(0, 0.02)": _deep("small"),
            "normal(0, 0.02), embedding of std 1": _deep("small", embedding=1.0),
            "normal(0, 0.02), quieter branches": _deep("gpt2"),
        },
    ),
    Claim(
        "Without warm-up, post-norm does not train 32 layers (16 blocks).",
        {"fan-in": _at("post"), "normal(0, 0.02)": _at("post", "small")},
        trains=False,
    ),
    Claim(
        "Warm-up lets post-norm train 32 layers.",
        {
            "fan-in, lr 1e-3, 60 of 120 steps": _at("post", warmup=60),
            "fan-in, lr 1e-4, 200 of 400 steps": _at("post", lr=1e-4, warmup=200, steps=400),
        },
    ),
    Claim(
        "Without norms in the blocks, 32 layers do not train.",
        {"fan-in": _at("bare"), "normal(0, 0.02)": _at("bare", "small")},
        trains=False,
    ),
    Claim(
        "Without a direct path, 32 layers do not train.",
        {"fan-in": _at("plain"), "normal(0, 0.02)": _at("plain", "small")},
        trains=False,
    ),
)


@dataclass(frozen=True)
class Finding:
    """What the seeds of one setting did; `agrees` is None when they differ or were not run."""

    setting: str
    losses: list[float]
    agrees: bool | None


@dataclass(frozen=True)
class Trial:
    """A claim, its findings, and the verdict that RULE gives."""

    sentence: str
    findings: list[Finding]
    verdict: str

    def __repr__(self) -> str:
        marks = {True: "agrees", False: "disagrees", None: "open"}
        widest = max(len(f.setting) for f in self.findings)
        lines = [f"“{self.sentence}”"]
        for f in self.findings:
            losses = " ".join(f"{loss:5.2f}" for loss in f.losses)
            lines.append(f"  {f.setting:{widest}}  {losses}  {marks[f.agrees]}")
        return "\n".join([*lines, *wrap(f"Verdict: {self.verdict}.", 92, subsequent_indent="  ")])


def hear(claim: Claim, results: Callable[[Run], list[float]] = stored_results) -> Trial:
    """Look the runs of a claim up and apply RULE."""
    findings = [_finding(name, results(run), claim.trains) for name, run in claim.settings.items()]
    return Trial(claim.sentence, findings, verdict(findings))


def verdict(findings: list[Finding]) -> str:
    """The verdict that RULE gives; the court of chapter 05 has the same four."""
    return court.verdict(findings, not_clear="open")


def _finding(setting: str, losses: list[float], trains: bool) -> Finding:
    as_said = sum((loss < HALFWAY) == trains for loss in losses)
    agrees = {len(losses): True, 0: False}.get(as_said)
    return Finding(setting, losses, None if any(map(isnan, losses)) else agrees)


@dataclass(frozen=True)
class Results:
    """Where three seeds of each setting ended, by the setting's name in words."""

    rows: dict[str, list[float]]
    start: float = LN_V
    floor: float = FLOOR


INITS = {"fan_in": "fan-in", "small": "0.02", "gpt2": "0.02, quiet"}


def results() -> Results:
    """All stored runs of the table."""
    return Results({_in_words(run): stored_results(run) for run in TABLE})


def _in_words(run: Run) -> str:
    text = f"{run.order}, {run.blocks} blocks, {INITS[run.init]}"
    text += f", embedding {run.embedding:g}" if run.embedding else ""
    text += f", lr {run.lr:g}" if run.lr != 1e-3 else ""
    return text + (f", warm-up {run.warmup}" if run.warmup else "")
