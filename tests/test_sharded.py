"""sharded.py: a model in two parts trains as a whole one does, and becomes whole again."""

import json
import os
import re
import types
from pathlib import Path

import pytest
import torch
from forks import ended, forked, two_processes
from safetensors.torch import load_file
from test_train import CORPUS, SHORT, TRAIN, Stop, model, stop_after
from torch import distributed
from torch.distributed import run as torchrun
from torch.testing import assert_close

from tiny_lm import checkpoint, sharded
from tiny_lm.cli import main
from tiny_lm.fast import speed_up
from tiny_lm.history import History
from tiny_lm.train import train

CAN = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8) and hasattr(os, "fork")
needs_fsdp2 = pytest.mark.skipif(not CAN, reason="FSDP2 wants torch 2.8, and these tests a fork")
FLAT = {"order": "rezero", "n_layers": 1}  # its fades have one number, which two can't share


def sizes(net):
    return [p.to_local().numel() for p in net.parameters()]


def keep(folder, name, net, history, **more):
    whole, rank = sharded.gathered(net), distributed.get_rank()
    more |= {"is_sharded": [sharded.is_sharded(net), sharded.is_sharded(whole)]}
    more |= {"sizes": sizes(net), "history": json.loads(history.to_json())}
    (folder / f"{name}.{rank}.json").write_text(json.dumps(more))
    torch.save(whole.state_dict(), folder / f"{name}.{rank}.pt")


def train_one_of_two(folder):
    """What each of two processes does, and leaves in the folder."""
    distributed.init_process_group("gloo")
    net = sharded.shard(model())
    names = [type(part).__name__ for part in net.modules()]
    groups = [name for name in names if name.startswith("FSDP")]
    keep(folder, "straight", net, train(net, CORPUS, SHORT), groups=groups)
    net = sharded.shard(speed_up(model(**FLAT)))
    keep(folder, "fast", net, train(net, CORPUS, SHORT))
    net = sharded.shard(model(seed=5))  # its weights come from the file of one process
    file = folder / "of_one.safetensors"
    keep(folder, "resumed", net, train(net, CORPUS, SHORT, run_file=file))
    with pytest.raises(Stop):
        file = folder / "of_two.safetensors"
        train(sharded.shard(model()), CORPUS, SHORT, run_file=file, on_step=stop_after(8))
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder where two processes left what they found."""
    import torch.distributed.fsdp  # noqa: F401 - once, not in each process

    folder = tmp_path_factory.mktemp("sharded")
    with pytest.raises(Stop):
        file = folder / "of_one.safetensors"
        train(model(), CORPUS, SHORT, run_file=file, on_step=stop_after(8))
    assert two_processes(train_one_of_two, folder) == [0, 0]
    return folder


def of(folder, name, rank):
    found = json.loads((folder / f"{name}.{rank}.json").read_text())
    weights = torch.load(folder / f"{name}.{rank}.pt", weights_only=True)
    return types.SimpleNamespace(**found), weights


def expect_the_same(history, weights, other, wanted):
    """Sums in float32, in another order: losses to 1e-5, gradients to 1e-4.

    AdamW divides a slope by its size, so that its smallest ones carry their rounding errors along:
    weights may differ by a thousandth of a learning rate, of the twelve that they could move.
    """
    assert history.loss == pytest.approx(other.loss, rel=1e-5)
    assert history.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
    assert max(other.grad_norm) > SHORT.clip  # so that clipping takes part
    for one, two in zip(history.evaluations, other.evaluations, strict=True):
        assert one.loss == pytest.approx(two.loss, rel=1e-5)
        assert one.update_ratio == pytest.approx(two.update_ratio, rel=1e-4)
        assert one.stream_rms == pytest.approx(two.stream_rms, rel=1e-4)
    assert list(weights) == list(wanted)
    for name, value in wanted.items():
        assert_close(weights[name], value, rtol=0, atol=SHORT.lr / 1000, msg=name)


@needs_fsdp2
@pytest.mark.parametrize(("name", "changes"), [("straight", {}), ("fast", FLAT), ("resumed", {})])
def test_two_parts_train_as_one_whole_does(name, changes, trained):
    net = model(**changes)
    history = train(net, CORPUS, SHORT)
    for rank in (0, 1):
        found, weights = of(trained, name, rank)
        two = History.from_json(json.dumps(found.history))
        expect_the_same(two, weights, history, net.state_dict())


@needs_fsdp2
def test_each_process_keeps_its_part_alone(trained):
    net = model()
    (one, _), (two, _) = (of(trained, "straight", rank) for rank in (0, 1))
    assert one.is_sharded == two.is_sharded == [True, False]
    for first, second, p in zip(one.sizes, two.sizes, net.parameters(), strict=True):
        assert first + second == p.numel() and first - second in (0, p[0].numel())
    assert one.groups == ["FSDPTinyLM", *["FSDPTransformerBlock"] * 2]  # block by block
    (one, _), (two, _) = (of(trained, "fast", rank) for rank in (0, 1))
    assert 0 in two.sizes and 0 not in one.sizes


@needs_fsdp2
def test_one_process_goes_on_from_where_two_were(trained):
    file = trained / "of_two.safetensors"
    state = load_file(file)
    assert all(state[f"weight.{n}"].shape == p.shape for n, p in model().named_parameters())
    whole, resumed, steps = model(), model(seed=5), []
    history = train(whole, CORPUS, SHORT)
    found = train(resumed, CORPUS, SHORT, run_file=file, on_step=lambda h: steps.append(h.loss[-1]))
    assert len(steps) == 7  # from the evaluation after step 5
    expect_the_same(found, resumed.state_dict(), history, whole.state_dict())


@needs_fsdp2
def test_torchrun_leaves_the_file_that_one_process_would(tmp_path, monkeypatch, capfd):
    """In processes that torchrun itself starts: a fresh Python and torch each."""
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    assert main(["train", str(one), *TRAIN.split()]) == 0
    capfd.readouterr()
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    command = ["-m", "tiny_lm", "train", str(two), *TRAIN.split(), "--shard"]
    status = ended(forked(torchrun.main, ["--standalone", "--nproc-per-node=2", *command]))
    out, err = capfd.readouterr()
    assert status == 0, err[-3000:]
    assert out.count("12 steps, validation loss") == 1
    assert {path.name for path in tmp_path.iterdir()} == {one.name, two.name}
    wanted = checkpoint.load(one)[0].state_dict()
    for name, value in checkpoint.load(two)[0].state_dict().items():
        assert_close(value, wanted[name], rtol=0, atol=SHORT.lr / 1000, msg=name)


@needs_fsdp2
def test_one_process_alone_has_nobody_to_share_with(tmp_path, capsys):
    message = "shard: expected processes started by torchrun, got one on its own"
    with pytest.raises(ValueError, match=message):
        sharded.shard(model())
    assert main(["train", str(tmp_path / "m.safetensors"), *TRAIN.split(), "--shard"]) == 2
    assert message in capsys.readouterr().err and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["2.4.1+cu121", "2.7.1"])
def test_a_torch_that_is_too_old_is_refused(version, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch, "__version__", version)
    message = f"shard: expected torch 2.8 or newer, got {version}"
    with pytest.raises(ImportError, match=re.escape(message)):
        sharded.shard(model())
    assert main(["train", str(tmp_path / "m.safetensors"), *TRAIN.split(), "--shard"]) == 1
    assert message in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_what_is_whole_stays_as_it_is():
    net = model()
    tensor = net.embedding.weight
    assert sharded.whole(tensor) is tensor and sharded.part(tensor, tensor) is tensor
    assert not sharded.is_sharded(net)
    copy = sharded.gathered(net)
    assert copy is not net and torch.equal(copy.embedding.weight, tensor)
