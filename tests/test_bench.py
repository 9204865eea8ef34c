"""bench: who takes part does the same work, times are taken in turns, and what is printed is so."""

import subprocess
import sys
import time
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from tiny_lm.bench import contest, decoding, growth, imports, norms, training
from tiny_lm.bench import floor as floors
from tiny_lm.bench.contest import Contest, Result
from tiny_lm.bench.floor import FLOOR, floor
from tiny_lm.cli import main
from tiny_lm.fast import speed_up
from tiny_lm.generate import generate
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.plots.growth import GrowthPicture


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the ways move."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(contest.time, "perf_counter", lambda: now.seconds)
    return now


def way(clock, *seconds):
    """A way that takes these seconds, call by call, the last for ever."""
    calls = count()

    def run():
        clock.seconds += seconds[min(next(calls), len(seconds) - 1)]

    return run


def test_ways_are_timed_in_turns_in_changing_order(clock):
    order, rounds = [], []

    def named(name):
        clock.seconds += 1
        order.append(name)

    ways = {name: lambda name=name: named(name) for name in "abc"}
    contest.run(Contest("", ways, repetitions=6), progress=lambda: rounds.append(len(order)))
    assert "".join(order[:6]) == "aabbcc"
    turns = ["".join(order[at - 3 : at]) for at in rounds]
    assert rounds == [9, 12, 15, 18, 21, 24]
    assert all(sorted(turn) == list("abc") for turn in turns) and len(set(turns)) > 2


def test_short_work_is_done_for_two_milliseconds_a_turn(clock):
    calls = []
    ways = {"short": way(clock, 0.0005), "long": way(clock, 1.0)}
    counted = {name: lambda name=name: (calls.append(name), ways[name]()) for name in ways}
    result = contest.run(Contest("", counted, repetitions=2))
    assert calls.count("short") == 2 + 2 * 4 and calls.count("long") == 2 + 2
    assert result.median("short") == pytest.approx(0.0005)


def test_the_first_calls_are_not_counted(clock):
    result = contest.run(Contest("", {"a": way(clock, 100, 100, 1)}, repetitions=3))
    assert result.seconds == {"a": [1, 1, 1]}


def test_a_ratio_is_taken_round_by_round():
    """A machine that gets ten times slower half way changes no ratio."""
    seconds = {"base": [1, 1, 10, 10, 10], "mine": [0.5, 0.5, 5, 5, 5]}
    result = Result(Contest("", {}), seconds)
    assert result.ratio("base") == 1 and result.ratio("mine") == 0.5
    assert result.median("mine") == 5
    crossed = Result(Contest("", {}), {"base": [1, 2, 10], "mine": [1, 1, 9]})
    assert crossed.ratio("mine") == pytest.approx(0.9)


def test_a_table_says_who_reached_his_mark(clock):
    ways = {"base": way(clock, 0.002), "mine": way(clock, 0.001), "other": way(clock, 4e-6)}
    result = contest.run(Contest("work", ways, {"mine": 0.6, "other": 0.001}, 3))
    assert [line.split() for line in contest.table(result, 2).splitlines()] == [
        ["work:", "2", "threads,", "medians", "of", "3"],
        ["base", "1.000", "2", "ms"],
        ["mine", "0.500", "1", "ms", "reached:", "0.6"],
        ["other", "0.002", "4", "µs", "missed:", "0.001"],
    ]


def test_a_contest_without_ways_is_refused():
    with pytest.raises(ValueError, match="bench: expected a way and a repetition"):
        contest.run(Contest("nothing", {}))


# Who takes part


def test_norms_of_all_libraries_compute_the_same():
    x, slope = norms.inputs((3, 4, 8), "cpu")
    found = norms.norms(8, "cpu")
    base = found.pop(norms.BASE)
    for name, norm in found.items():
        if "LayerNorm" not in name:
            assert_close(norm(x), base(x), rtol=1e-4, atol=1e-4, msg=name)
            slopes = zip(norms.both(norm, x, slope)(), norms.both(base, x, slope)(), strict=True)
            for got, wanted in slopes:
                assert_close(got, wanted, rtol=1e-4, atol=1e-4, msg=name)
    assert {"tiny_lm, fast", "tiny_lm, taught", "torch.nn.LayerNorm"} <= set(found)


def test_forward_alone_keeps_no_graph():
    x, _ = norms.inputs((2, 8), "cpu")
    assert not norms.forward(norms.norms(8, "cpu")[norms.FAST], x)().requires_grad


def test_training_contestants_are_the_same_size_and_learn(monkeypatch):
    monkeypatch.setattr(training, "T", 16)
    only, curves = training.contests(quick=True)
    assert [len(line.split()) for line in curves.splitlines()[1:]] == [2, 3]
    size = sum(p.numel() for p in training.tiny().parameters())
    assert f"{size / 1e6:.2f} M" in only.work and size == 824_448
    for name, (make, _) in training.libraries().items():
        theirs = sum(p.numel() for p in make().parameters())
        own_output = training.V * training.D if "litgpt" in name else 0
        assert abs(theirs - own_output - size) < 0.02 * size, name
    assert FLOOR in only.ways
    for name, step in only.ways.items():
        if name == FLOOR:
            continue
        losses = [float(step()) for _ in range(3)]
        assert losses[0] > losses[-1], name


def test_compiled_models_take_part_and_say_how_long_compiling_took(monkeypatch):
    monkeypatch.setattr(training, "missing", lambda packages: packages)
    monkeypatch.setattr(torch, "compile", lambda model: model)  # it needs a C++ compiler
    monkeypatch.setattr(training, "T", 4)
    *lines, only, curves = training.contests(quick=True, compiled=True)
    assert [line.split(":")[0] for line in lines] == [training.COMPILED, training.BOTH]
    assert all(
        line.endswith("s to the first step; less if it was compiled before") for line in lines
    )
    assert {training.COMPILED, training.BOTH} < set(only.ways)
    assert [line.split("  ")[1] for line in curves.splitlines()[1:]] == [
        "float32",
        "bf16 autocast",
        "compiled, bf16",
    ]


@pytest.mark.parametrize("learned", [False, True])
def test_the_floor_is_the_arithmetic_of_the_model_and_no_other(learned):
    """Every product of matrices that torch counts in a pass, no more and no fewer."""
    model = speed_up(TinyLM(ModelConfig(n_layers=3, d_model=16, n_heads=4, n_kv_heads=2, d_ff=24)))
    tokens = torch.arange(12).view(2, 6)
    with FlopCounterMode(display=False) as whole:
        if learned:
            model(tokens).sum().backward()
        else:
            generate(model, tokens, 1, temperature=0)
    scored = 12 if learned else 2  # of a prompt, the last token of each text
    with FlopCounterMode(display=False) as part:
        floor(model, 2, 6, scored=scored, learned=learned)()
    assert part.get_total_flops() == whole.get_total_flops() > 100_000


@pytest.mark.parametrize(("T", "passes", "attended"), [(1, 7, 0), (6, 1, 4), (6, 2, 8)])
def test_the_floor_attends_in_every_block_of_every_pass(monkeypatch, T, passes, attended):
    """torch counts no multiplications of a vector, nor those of its kernel for attention."""
    asked = {"multiply": [], "scaled_dot_product_attention": []}
    for name, found in asked.items():
        whole = getattr(floors, name)
        monkeypatch.setattr(
            floors,
            name,
            lambda *given, whole=whole, found=found, **more: (
                found.append(given[0].shape) or whole(*given, **more)
            ),
        )
    floor(speed_up(training.tiny()), 1, T, scored=1, passes=passes)()
    assert len(asked["multiply"]) == passes * (4 * 4 + 1)
    assert asked["scaled_dot_product_attention"] == [(1, 4, T, 32)] * attended


def test_every_training_step_moves_the_weights():
    model = training.tiny()
    before = [p.detach().clone() for p in model.parameters()]
    training.step(model, "cpu")()
    assert all(not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_without_other_libraries_or_the_model_a_line_says_so(monkeypatch):
    monkeypatch.setattr(decoding.pretrained, "cached", lambda name: None)
    monkeypatch.setattr(decoding, "missing", lambda packages: [])
    assert list(decoding.contests()) == [
        "smollm2-135m: left out, for want of `python -m tiny_lm fetch smollm2-135m`"
    ]
    monkeypatch.setattr(decoding, "missing", lambda packages: ["transformers"])
    assert list(decoding.contests()) == ["smollm2-135m: left out, for want of transformers"]
    monkeypatch.setattr(training, "missing", lambda packages: packages)
    monkeypatch.setattr(training, "T", 4)
    only, _ = training.contests(quick=True)
    assert next(iter(only.ways)) == training.FAST and only.marks == {}


def test_the_error_of_rounded_weights_is_that_of_their_log_probabilities():
    exact, other = training.tiny(), training.tiny()
    ids = torch.arange(40)[None] % 9
    same = decoding.error("nothing", exact, other, ids)
    assert same == (
        "error of nothing: log-probabilities of 39 tokens of a text differ by 0.000 nats on "
        "average and 0.000 at most, their mean by +0.000; the likeliest token is the same at 39 "
        "positions"
    )
    with torch.no_grad():
        other.embedding.weight[3] *= 40  # one token becomes far more likely, or far less
        whole = [model(ids)[0, :-1].double().log_softmax(-1) for model in (exact, other)]
    own = [log[range(39), ids[0, 1:]] for log in whole]
    apart = (own[1] - own[0]).abs()
    text = decoding.error("a change", exact, other, ids)
    assert f"by {apart.mean():.3f} nats on average and {apart.max():.3f} at most" in text
    assert f"their mean by {(own[1] - own[0]).mean():+.3f};" in text
    assert f"the same at {(whole[0].argmax(-1) == whole[1].argmax(-1)).sum()} positions" in text
    assert apart.max() > 1


def test_missing_names_what_cannot_be_imported():
    assert list(contest.missing(["torch", "a_package_of_nobody"])) == ["a_package_of_nobody"]


def test_an_import_is_timed_in_another_python():
    (only,) = imports.contests(quick=True)
    assert list(only.ways) == ["import torch", "import tiny_lm.model"]
    with pytest.raises(subprocess.CalledProcessError):
        imports.importing("a_package_of_nobody")()


# Growth


def test_a_law_is_found_again():
    sizes = (1, 2, 4, 8, 16)
    line = growth.Growth("depth", sizes, [0.5 + 2 * n for n in sizes], [3 * n for n in sizes])
    assert line.straightness == pytest.approx(1)
    assert line.memory_exponent == pytest.approx(1)
    square = growth.Growth("depth", sizes, [n**2 for n in sizes], [n**2 for n in sizes])
    assert square.time_exponent == pytest.approx(2)
    assert square.straightness < 0.97


@pytest.mark.parametrize("name", ["depth", "batch", "prompt", "written"])
def test_memory_grows_in_proportion(name, monkeypatch):
    """Fused attention never writes a [T, T] matrix down, so a long row costs no more than its T."""
    monkeypatch.setitem(growth.STILL, "batch", 1)
    small, large = growth.SIZES[name][-2:]
    assert large / small == 2
    ratio = growth.memory(name, large) / growth.memory(name, small)
    assert ratio == pytest.approx(2, rel=0.06)


def test_the_cache_holds_keys_and_values_of_every_block():
    assert growth.memory("written", 32) == 4 * 2 * 32 * 128 * 4  # blocks, k and v, T, D, bytes


def test_the_picture_says_the_exponents():
    sizes = (1, 2, 4, 8)
    grown = [
        growth.Growth(name, sizes, [n**1.5 for n in sizes], list(sizes)) for name in growth.SIZES
    ]
    picture = GrowthPicture(grown)
    assert picture.sentence.startswith("Exponents of time and of memory: depth 1.50 and 1.00; ")
    assert picture.sentence.count("1.50 and 1.00") == len(growth.SIZES)
    drawn = picture.lines["time", "batch"].get_xydata()
    assert drawn.tolist() == [[n, n**1.5] for n in sizes]
    assert picture.pixels().std() > 0


# The command


def test_the_command_prints_machine_versions_and_rows(capsys, monkeypatch):
    monkeypatch.setattr(norms, "LARGE", ((2, 3, 8),))
    monkeypatch.setattr(norms, "SMALL", (1, 2, 4))
    before = torch.get_num_threads()
    assert main(["bench", "norms", "--quick", "--threads", "1", "2"]) == 0
    assert torch.get_num_threads() == before
    printed = capsys.readouterr().out
    assert f"torch {torch.__version__.partition('+')[0]}" in printed and " cores" in printed
    assert "RMSNorm forward + backward, fp32 [2, 3, 8]: 1 thread, medians of 10" in printed
    assert "RMSNorm forward alone, fp32 [2, 3, 8]: 2 threads, medians of 10" in printed
    assert "RMSNorm forward + backward, fp32 [1, 2, 4]: 2 threads, medians of 10" in printed
    assert printed.count("torch.nn.RMSNorm ") == 6


def test_the_command_draws_growth(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(growth, "SIZES", {"depth": (1, 2, 4), "written": (2, 4, 8)})
    monkeypatch.setitem(growth.STILL, "batch", 1)
    assert main(["bench", "growth", "--quick", "--out", str(tmp_path / "g.png")]) == 0
    printed = capsys.readouterr().out
    assert "depth, in blocks" in printed and "tokens written with a cache" in printed
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "bench: expected kinds norms, training, decoding, imports, growth, got noth"),
        (["norms", "--threads", "0"], "bench: expected threads >= 1, got 0"),
        (["norms", "--threads", "1025"], "bench: expected at most 1024 threads, got 1025"),
        (["norms", "--device", "abacus"], "bench: expected a device that is here, cpu or cuda"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, message, capsys):
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_norms_need_nothing_but_torch():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['tqdm', 'matplotlib', 'safetensors', "
        "'gguf', 'transformers', 'platformdirs']));"
        "from tiny_lm.bench import norms, contest;"
        "norms.LARGE = ((1, 2, 4),); c = next(norms.contests(quick=True));"
        "print(contest.table(contest.run(c), 1))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "tiny_lm, fast" in done.stdout, done.stderr


def test_seconds_are_real_ones():
    result = contest.run(Contest("", {"sleep": lambda: time.sleep(0.01)}, repetitions=2))
    assert all(0.01 <= seconds < 1 for seconds in result.seconds["sleep"])
