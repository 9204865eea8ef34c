"""kept.py: the second load gives the first one's floats; a file that does not fit is made again."""

import os

import pytest
import torch
from llama_writers import small_model, write_gguf
from safetensors import safe_open

from tiny_lm import checkpoint, pretrained
from tiny_lm.fast import speed_up
from tiny_lm.formats import kept

TOKENS = torch.tensor([[3, 1, 4, 1, 5]])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "kept.safetensors"


def make():
    return small_model(), None


def never():
    pytest.fail("it was made again")


def same(one, other):
    return all(
        torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items()
    )


def test_the_second_time_nothing_is_made(file):
    first, _ = kept.load(file, "a source", make)
    second, _ = kept.load(file, "a source", never)
    assert same(first, second) and not second.training
    assert sorted(file.parent.iterdir()) == [file]


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="only Linux lists its mappings")
def test_the_weights_stay_in_the_file(file):
    kept.load(file, "a source", make)
    model, _ = kept.load(file, "a source", never)
    with file.open("rb") as stream:
        on_disk = os.fstat(stream.fileno())
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert any(line.split()[4] == str(on_disk.st_ino) for line in maps)
    del model


def test_training_a_kept_model_leaves_its_file_alone(file):
    kept.load(file, "a source", make)
    before = file.read_bytes()
    model, _ = kept.load(file, "a source", never)
    with torch.no_grad():
        for weight in speed_up(model).parameters():
            weight.add_(1.0)
    assert file.read_bytes() == before
    assert same(kept.load(file, "a source", never)[0], small_model())


def test_a_model_of_another_source_is_made_again(file):
    kept.load(file, "a source", make)
    with pytest.raises(pytest.fail.Exception):
        kept.load(file, "another", never)
    kept.load(file, "another", make)
    kept.load(file, "another", never)


def flip(data):
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:100], lambda data: b"", flip]
)
def test_a_damaged_file_is_made_again(file, damage):
    """The last: one bit of one weight."""
    kept.load(file, "a source", make)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(pytest.fail.Exception):
        kept.load(file, "a source", never)
    kept.load(file, "a source", make)
    assert same(kept.load(file, "a source", never)[0], small_model())


def test_a_checkpoint_without_notes_is_not_believed(file):
    checkpoint.save(file, small_model())
    kept.load(file, "a source", make)
    with safe_open(file, framework="pt") as opened:
        assert opened.metadata()["source"] == "a source"


def test_a_disk_that_cannot_be_written_is_no_obstacle(file, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    model, _ = kept.load(file, "a source", make)
    assert same(model, small_model()) and not file.exists()


def test_a_known_model_is_kept_beside_its_file(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "T.gguf", small_model(), kind="Q8_0")
    release = pretrained.Release("tiny-thing", "1.0", "T.gguf", path.stat().st_size, "f" * 64)
    monkeypatch.setattr(pretrained, "MODELS", {"tiny": release})
    monkeypatch.setattr(pretrained, "fetch", {"tiny": path}.__getitem__)
    first, tokenizer = pretrained.load("tiny")
    assert (tmp_path / "T.safetensors").exists()
    path.write_bytes(b"")  # it is not read again
    second, again = pretrained.load("tiny")
    assert same(first, second)
    assert (tokenizer is None) == (again is None)
    if tokenizer:
        assert tokenizer.to_json() == again.to_json()
    with pytest.raises(ValueError, match="GGUF"):
        pretrained.load("tiny", dtype=torch.bfloat16)  # that one comes from the source
