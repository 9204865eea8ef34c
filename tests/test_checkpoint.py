"""checkpoint.py: what is saved comes back to the bit, and a broken file gives nothing at all."""

import json
import os
import signal
import time
from dataclasses import asdict

import pytest
import torch
from forks import ended, forked
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_writers import small_model, some_tokens
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tiny_lm import checkpoint
from tiny_lm.layers import RMSNorm
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.tokenizer import BytePairTokenizer, CharTokenizer

VARIANTS = {
    "tied": {},
    "untied": {"tied": False},
    "layer norm": {"norm": "layer"},
    "post norm": {"order": "post"},
    "one kv head": {"n_kv_heads": 1},
}


def saved(path, model=None, tokenizer=None):
    return checkpoint.save(path / "model.safetensors", model or small_model(), tokenizer)


def write(path, tensors, **header):
    """A .safetensors file that says of itself what a test wants it to say."""
    save_file(tensors, path, metadata={key: str(value) for key, value in header.items()})
    return path


def header(config=None, **changes):
    config = asdict(config or small_model().config) | changes
    return {"format": "tiny_lm", "config": json.dumps(config)}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_model_comes_back_to_the_bit(tmp_path, changes, dtype):
    model = small_model(**changes).to(dtype)
    again, tokenizer = checkpoint.load(saved(tmp_path, model))
    assert (again.config, tokenizer, again.training) == (model.config, None, False)
    state = again.state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert {value.dtype for value in state.values()} == {dtype}
    with torch.no_grad():
        assert torch.equal(again(some_tokens()), model(some_tokens()))


def test_a_weight_that_is_a_view_is_saved(tmp_path):
    model = small_model()
    matrix = model.blocks[0].attention.q_proj.weight
    matrix.data = matrix.data.T.contiguous().T  # the same numbers, column by column
    assert not matrix.is_contiguous()
    again, _ = checkpoint.load(saved(tmp_path, model))
    assert torch.equal(again.blocks[0].attention.q_proj.weight, matrix)


def test_notes_are_kept_and_replace_nothing(tmp_path):
    notes = {"why": "to see", "config": "{}", "format": "pt"}
    path = checkpoint.save(tmp_path / "model.safetensors", small_model(), notes=notes)
    assert checkpoint.load(path)[0].config == small_model().config
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["why"] == "to see"


def test_what_was_loaded_can_be_trained(tmp_path):
    model, _ = checkpoint.load(saved(tmp_path))
    model(some_tokens()).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    "tokenizer",
    [CharTokenizer("abc é日\n"), BytePairTokenizer.train("a cab, a cab", 258, special=["<end>"])],
    ids=["characters", "byte pairs"],
)
def test_the_tokenizer_travels_with_the_model(tmp_path, tokenizer):
    _, again = checkpoint.load(saved(tmp_path, tokenizer=tokenizer))
    assert type(again) is type(tokenizer)
    assert again.encode("a cab") == tokenizer.encode("a cab")
    assert again.end_id == tokenizer.end_id


def test_the_file_can_be_read_by_others(tmp_path):
    """The folder's usual rights, one file, and tensors under TinyLM's own names."""
    path = saved(tmp_path)
    usual = tmp_path / "usual"
    usual.touch()
    assert path.stat().st_mode == usual.stat().st_mode
    assert load_file(path).keys() == small_model().state_dict().keys()
    assert sorted(os.listdir(tmp_path)) == ["model.safetensors", "usual"]


def test_a_loaded_model_does_not_depend_on_its_file(tmp_path):
    path = saved(tmp_path)
    model, _ = checkpoint.load(path)
    before = model.embedding.weight.detach().clone()
    data = path.read_bytes()
    path.write_bytes(data[:1000] + bytes(len(data) - 1000))
    assert torch.equal(model.embedding.weight, before)


# Whole or not at all


@pytest.mark.parametrize("step", ["save_file", "fsync", "replace"])
def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = saved(tmp_path)
    old = path.read_bytes()

    def fails(*arguments, **options):
        if step == "save_file":
            arguments[1].write_bytes(b"half of it")
        raise OSError("no space left")

    owner = {"save_file": "safetensors.torch.save_file"}.get(step, f"os.{step}")
    monkeypatch.setattr(owner, fails)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save(path, small_model(seed=1))
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["model.safetensors"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_process_killed_while_saving_leaves_the_old_file(tmp_path, monkeypatch):
    path = saved(tmp_path)
    old = path.read_bytes()

    def killed(tensors, path, metadata):
        path.write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)

    model, _ = checkpoint.load(path)
    monkeypatch.setattr("safetensors.torch.save_file", killed)
    assert ended(forked(checkpoint.save, path, model)) == -signal.SIGKILL
    assert path.read_bytes() == old
    checkpoint.load(path)


def test_a_folder_that_does_not_exist_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        checkpoint.save(tmp_path / "none" / "model.safetensors", small_model())


def test_the_library_s_own_error_becomes_an_os_error(tmp_path, monkeypatch):
    import safetensors

    def fails(*arguments, **options):
        raise safetensors.SafetensorError("I/O error")

    monkeypatch.setattr("safetensors.torch.save_file", fails)
    with pytest.raises(OSError, match=r"checkpoint.save: could not write .*: I/O error"):
        saved(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_model_that_is_not_its_config_is_not_saved(tmp_path):
    model = small_model()
    model.blocks[1].norm1 = RMSNorm(32)
    message = r"checkpoint.save: expected blocks.1.norm1.scale \[64\], got \[32\]"
    with pytest.raises(ValueError, match=message):
        saved(tmp_path, model)
    model = small_model()
    model.extra = torch.nn.Linear(2, 2, bias=False)
    with pytest.raises(ValueError, match=r"the 20 tensors of its config, got 1 left over: extra.w"):
        saved(tmp_path, model)
    assert os.listdir(tmp_path) == []


# Files that are not what they should be


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    model = TinyLM(ModelConfig(n_layers=1, d_model=4, d_ff=4))
    return saved(tmp_path_factory.mktemp("cut"), model, CharTokenizer("ab"))


@settings(deadline=None, max_examples=60, derandomize=True)
@given(length=st.integers(min_value=0))
def test_a_file_cut_short_anywhere_is_refused(small_file, length):
    data, path = small_file.read_bytes(), small_file.with_name("cut.safetensors")
    path.write_bytes(data[: length % len(data)])
    with pytest.raises(ValueError, match=r"checkpoint.load: expected a .safetensors file, got"):
        checkpoint.load(path)


@pytest.mark.parametrize("what", ["missing", "folder", "empty", "pickle", "text", "longer"])
def test_another_kind_of_file_is_refused(tmp_path, what):
    path = tmp_path / "model.safetensors"
    if what == "folder":
        path.mkdir()
    elif what == "pickle":
        torch.save(small_model().state_dict(), path)
    elif what == "longer":
        path.write_bytes(saved(tmp_path).read_bytes() + b"\0")
    elif what != "missing":
        path.write_text("" if what == "empty" else "a poem, for example\n" * 9)
    with pytest.raises(ValueError, match=r"checkpoint.load: expected a .safetensors file, got"):
        checkpoint.load(path)


def test_a_pickle_is_never_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "it went off"),))

    torch.save(Bomb(), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"expected a .safetensors file"):
        checkpoint.load(tmp_path / "model.safetensors")
    assert os.listdir(tmp_path) == ["model.safetensors"]


@pytest.mark.parametrize(
    "given_header",
    [{}, {"format": "pt"}, {"format": "tiny_lm"}, header() | {"format": "pt"}],
    ids=["nothing", "another format", "no config", "our config in another format"],
)
def test_a_checkpoint_of_another_program_is_refused(tmp_path, given_header):
    path = write(tmp_path / "a.safetensors", small_model().state_dict(), **given_header)
    message = r"expected a checkpoint of tiny_lm, got .* \(its header has no config of a TinyLM\)"
    with pytest.raises(ValueError, match=message):
        checkpoint.load(path)


def test_a_broken_tokenizer_is_refused(tmp_path):
    path = write(tmp_path / "a.safetensors", small_model().state_dict(), tokenizer="?", **header())
    with pytest.raises(ValueError, match=r"tokenizer.from_json: expected what to_json\(\) wrote"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    "config", ["", "3", "[]", "{", '{"width": 3}', '{"n_layers": 0}', '{"norm_eps": "small"}']
)
def test_a_config_that_is_none_is_refused(tmp_path, config):
    path = write(
        tmp_path / "a.safetensors", small_model().state_dict(), format="tiny_lm", config=config
    )
    with pytest.raises(ValueError, match=r"checkpoint.load: expected the config of a TinyLM, got"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"n_layers": 3},
            r"the 29 tensors of its config, got 9 missing: blocks.2.attention.k_proj.",
        ),
        (
            {"n_layers": 1},
            r"the 11 tensors of its config, got 9 left over: blocks.1.attention.k_pro",
        ),
        ({"tied": False}, r"the 21 tensors of its config, got 1 missing: output.weight"),
        ({"norm": "layer"}, r"got 5 missing: blocks.0.norm1.shift, blocks.0.norm2.shift, .*, …"),
        ({"n_kv_heads": 4}, r"attention.k_proj.weight \[64, 64\], got \[32, 64\]"),
        ({"d_ff": 100}, r"blocks.0.ffn.gate_proj.weight \[100, 64\], got \[96, 64\]"),
        ({"vocab_size": 51}, r"embedding.weight \[51, 64\], got \[50, 64\]"),
        ({"d_model": 32}, r"embedding.weight \[50, 32\], got \[50, 64\]"),
        ({"n_layers": 10**12}, r"tensors for 1000000000000 layers, got 20 tensors"),
        ({"d_model": 2**40}, r"embedding.weight \[50, 1099511627776\], got \[50, 64\]"),
        ({"d_ff": 2**40}, r"gate_proj.weight \[1099511627776, 64\], got \[96, 64\]"),
        ({"d_ff": 2**62}, r"gate_proj.weight \[4611686018427387904, 64\], got \[96, 64\]"),
        ({"vocab_size": 2**62}, r"embedding.weight \[4611686018427387904, 64\], got \[50, 64\]"),
    ],
    ids=str,
)
def test_tensors_that_are_not_those_of_the_config_are_refused(tmp_path, changes, message):
    path = write(tmp_path / "a.safetensors", small_model().state_dict(), **header(**changes))
    start = time.perf_counter()
    with pytest.raises(ValueError, match="checkpoint.load: expected .*" + message):
        checkpoint.load(path)
    assert time.perf_counter() - start < 2  # a config that lies builds no giant


def test_whole_numbers_are_no_weights(tmp_path):
    state = small_model().state_dict()
    state["norm_final.scale"] = torch.ones(64, dtype=torch.int32)
    path = write(tmp_path / "a.safetensors", state, **header())
    message = r"expected floating-point numbers in norm_final.scale, got torch.int32"
    with pytest.raises(ValueError, match=message):
        checkpoint.load(path)


def test_an_empty_checkpoint_is_refused(tmp_path):
    path = write(tmp_path / "a.safetensors", {}, **header())
    with pytest.raises(ValueError, match=r"expected embedding.weight \[50, 64\], got none"):
        checkpoint.load(path)


def test_save_follows_a_link_and_refuses_what_is_no_file(tmp_path):
    model = TinyLM(ModelConfig(n_layers=1, d_model=4, n_heads=1, d_ff=4, vocab_size=5))
    link = tmp_path / "link.safetensors"
    link.symlink_to(tmp_path / "target.safetensors")
    checkpoint.save(link, model)
    assert link.is_symlink() and (tmp_path / "target.safetensors").is_file()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match=r"checkpoint.save: expected the path of a file, got"):
            checkpoint.save(path, model)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "link.safetensors", "pipe", "target.safetensors",
    ]  # fmt: skip
