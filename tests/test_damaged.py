"""Models in files that were damaged or that lie: refused in one form, soon, in little memory."""

import json
import os
import struct
from math import inf, nan

import gguf
import numpy as np
import pytest
import torch
from damage import DEEP, SIZES, STRANGE, cases, damaged_bytes, damaged_json, damaged_value, tried
from damage import little_memory as limit
from llama_writers import gguf_settings, small_model, write_folder, write_gguf
from test_gguf_file import build, tensor

from tiny_lm import checkpoint, pretrained
from tiny_lm.formats.gguf_file import GGUFFile
from tiny_lm.tokenizer import BytePairTokenizer, CharTokenizer, from_json

TINY = {"n_layers": 1, "d_model": 8, "n_heads": 2, "n_kv_heads": 1, "d_ff": 8, "vocab_size": 300}
TOKENS = torch.tensor([[3, 1, 4]])


@pytest.fixture(autouse=True)
def little_memory():
    with limit():
        yield


@pytest.fixture(scope="module")
def model():
    return small_model(**TINY)


@pytest.fixture(scope="module")
def byte_pairs():
    text = "the cat sat on the mat, and the rat sat on the cat. " * 4
    return BytePairTokenizer.train(text, 290, special=["<end>"])


def run(found):
    """Use a model and its tokenizer as `generate` does."""
    model, tokenizer = found
    if tokenizer is not None:
        ids = tokenizer.encode("the cat")
        tokenizer.decode(ids)
    with torch.no_grad():
        model(TOKENS)


# Checkpoints of this package


@pytest.fixture(scope="module")
def whole(model, byte_pairs, tmp_path_factory):
    path = checkpoint.save(tmp_path_factory.mktemp("whole") / "m.safetensors", model, byte_pairs)
    return path.read_bytes()


def apart(data):
    """The header and the tensors of a .safetensors file."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def together(header, tensors, size=None):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + tensors


def read(path):
    return lambda: checkpoint.load(path)


def test_checkpoints_with_damaged_bytes(tmp_path, whole):
    path = tmp_path / "m.safetensors"
    reach = len(whole) - len(apart(whole)[1])
    used = 0
    for random in cases("checkpoint", 150):
        path.write_bytes(damaged_bytes(whole, random, random.choice((9, 200, reach, None))))
        used += tried(random, read(path))
    assert used < 75, "most of this should have been noticed"
    assert os.listdir(tmp_path) == [path.name]


def test_checkpoints_whose_header_is_not_true(tmp_path, whole):
    """Types, shapes and offsets that are whole JSON, but not what the tensors are."""
    path = tmp_path / "m.safetensors"
    header, tensors = apart(whole)
    about = {name: header.pop(name) for name in list(header) if name != "__metadata__"}
    used = 0
    for random in cases("header", 150):
        path.write_bytes(together(header | damaged_value(about, random), tensors))
        used += tried(random, read(path))
    assert used < 30
    for random in cases("config", 150):
        inner = json.loads(header["__metadata__"]["config"])
        inner = header["__metadata__"] | {"config": damaged_json(inner, random)}
        path.write_bytes(together({"__metadata__": inner} | about, tensors))
        tried(random, lambda: run(checkpoint.load(path)))
    for random in cases("its tokenizer", 60):
        inner = json.loads(header["__metadata__"]["tokenizer"])
        inner = header["__metadata__"] | {"tokenizer": damaged_json(inner, random)}
        path.write_bytes(together({"__metadata__": inner} | about, tensors))
        tried(random, lambda: run(checkpoint.load(path)))


def entry(dtype, shape, start, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


LIES = {
    "a huge shape": {"embedding.weight": entry("F32", [2**40, 2**40], 0, 9600)},
    "a product that wraps to what is there": {"w": entry("F32", [2**32, 2**32 + 1], 0, 0)},
    "an end before its start": {"embedding.weight": entry("F32", [300, 8], 9600, 0)},
    "an end beyond the file": {"embedding.weight": entry("F32", [300, 8], 0, 2**63)},
    "two tensors on the same bytes": {
        "embedding.weight": entry("F32", [300, 8], 0, 9600),
        "other": entry("F32", [300, 8], 0, 9600),
    },
    "a hole": {"embedding.weight": entry("F32", [1, 8], 32, 64)},
    "a type that is none": {"embedding.weight": entry("F33", [300, 8], 0, 9600)},
    "whole numbers": {"embedding.weight": entry("I32", [300, 8], 0, 9600)},
    "complex numbers": {"embedding.weight": entry("C64", [300, 4], 0, 9600)},
    "half bytes": {"embedding.weight": entry("F4", [600, 32], 0, 9600)},
    "a number alone": {"embedding.weight": entry("F32", [], 0, 4)},
    "a shape of -1": {"embedding.weight": entry("F32", [-1, 8], 0, 9600)},
    "a fraction": {"embedding.weight": entry("F32", [2.5, 8], 0, 9600)},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies(tmp_path, whole, lie):
    header, tensors = apart(whole)
    path = tmp_path / "m.safetensors"
    path.write_bytes(together({"__metadata__": header["__metadata__"]} | LIES[lie], tensors))
    with pytest.raises(ValueError, match=r"^checkpoint.load: expected .*, got "):
        checkpoint.load(path)


@pytest.mark.parametrize("size", SIZES)
def test_a_length_of_the_header_that_lies(tmp_path, whole, size):
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", size) + whole[8:])
    with pytest.raises(ValueError, match=r"^checkpoint.load: expected a .safetensors file, got "):
        checkpoint.load(path)


def test_a_header_with_a_name_twice_and_one_of_many_megabytes(tmp_path, whole):
    path = tmp_path / "m.safetensors"
    header, tensors = apart(whole)
    text = json.dumps(header)
    twice = text[:-1] + ', "embedding.weight": ' + json.dumps(entry("F32", [1, 8], 0, 32)) + "}"
    path.write_bytes(together(twice, tensors))
    with pytest.raises(ValueError, match=r"^checkpoint.load: expected "):
        checkpoint.load(path)
    header["__metadata__"]["notes"] = "x" * 20_000_000
    path.write_bytes(together(header, tensors))
    checkpoint.load(path)  # a waste, not a lie
    path.write_bytes(together(DEEP, tensors))
    with pytest.raises(ValueError, match=r"^checkpoint.load: expected a .safetensors file, got "):
        checkpoint.load(path)


# GGUF


@pytest.fixture(scope="module")
def pieces(byte_pairs):
    """The metadata of two tokenizers, one of each family."""
    inner = json.loads(byte_pairs.to_json())["tokenizer"]["model"]
    tokens = sorted(inner["vocab"], key=inner["vocab"].get)
    byte_level = {
        "model": "gpt2",
        "pre": "llama-bpe",
        "tokens": tokens,
        "merges": [" ".join(pair) for pair in inner["merges"]],
        "token_type": [3] + [1] * (len(tokens) - 1),
        "bos_token_id": 0,
        "eos_token_id": 0,
        "add_bos_token": True,
    }
    tokens = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "t", "at"]
    sentence_piece = {
        "model": "llama",
        "tokens": tokens,
        "scores": [0.0] * 258 + [-4.0, -3.0, -2.0, -1.0],
        "token_type": [2, 3, *[6] * 256, 1, 1, 1, 1],
        "bos_token_id": 1,
        "eos_token_id": 1,
        "unknown_token_id": 0,
    }
    return [
        {f"tokenizer.ggml.{key}": value for key, value in family.items()}
        for family in (byte_level, sentence_piece)
    ]


def test_gguf_files_with_damaged_bytes(tmp_path, model, pieces):
    path = tmp_path / "m.gguf"
    used = 0
    for family in pieces:
        data = write_gguf(path, model, family).read_bytes()
        reach = len(data) - 4 * sum(p.numel() for p in model.parameters())
        for random in cases(family["tokenizer.ggml.model"], 120):
            path.write_bytes(damaged_bytes(data, random, random.choice((24, 400, reach, None))))
            used += tried(random, lambda: run(pretrained.load(path)))
    assert used < 120
    assert os.listdir(tmp_path) == [path.name]


KINDS = (bool, int, float, str, list)


def test_gguf_files_whose_metadata_is_not_true(tmp_path, model, pieces):
    path = tmp_path / "m.gguf"
    known = gguf_settings(model)
    allowed = [v for v in STRANGE if type(v) in KINDS and v != [] and v not in ([None], [[]])]
    allowed = [v for v in allowed if type(v) is not int or 0 <= v < 2**32]  # as is written here
    allowed = [v for v in allowed if type(v) is not float or abs(v) < 1e38 or abs(v) == inf]
    allowed = [v for v in allowed if v != "\ud800"]  # a file holds UTF-8
    allowed += [[2**30], ["a", "a"], ["a b", ""], [1.5, nan], None]
    used = 0
    for random in cases("metadata", 200):
        given = known | random.choice(pieces)
        key = random.choice(list(given))
        given[key] = random.choice(allowed)
        write_gguf(path, model, given)
        used += tried(random, lambda: run(pretrained.load(path)))
    assert 10 < used < 150


@pytest.mark.parametrize("kind", sorted(gguf.GGML_QUANT_SIZES), ids=lambda kind: kind.name)
def test_every_type_of_weight_is_read_or_named(tmp_path, kind):
    """Random bits as weights: NaN and infinity are no errors, they are what the file says."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(0).integers(0, 256, 4 * size, np.uint8).tobytes()
    path = build(tmp_path / "m.gguf", [], [tensor("w", [2 * block, 2], int(kind), 0)], data)
    with np.errstate(all="ignore"):
        (random,) = cases(kind.name, 1)
        tried(random, lambda: GGUFFile(path).read("w").shape == (2, 2 * block))


def test_a_token_as_long_as_its_file_is_refused(tmp_path, model, pieces):
    """Each way to cut it in two would be tried: a million of them, a megabyte each."""
    given = dict(pieces[1])
    given["tokenizer.ggml.tokens"] = [*given["tokenizer.ggml.tokens"][:-1], "a" * 1_000_000]
    path = write_gguf(tmp_path / "m.gguf", model, given)
    with pytest.raises(ValueError, match=r"^GGUF tokenizer: expected tokens of at most 1000 char"):
        pretrained.load(path)


# Hugging Face folders


@pytest.fixture(scope="module")
def folder(model, byte_pairs, tmp_path_factory):
    path = write_folder(tmp_path_factory.mktemp("folder") / "m", model, shards=2)
    inner = json.loads(byte_pairs.to_json())["tokenizer"]
    (path / "tokenizer.json").write_text(json.dumps(inner))
    (path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<end>"}, "b": [1]}')
    return path


@pytest.mark.parametrize(
    ("name", "count", "most"),
    [
        ("config.json", 150, 75),
        ("model.safetensors.index.json", 60, 30),
        ("tokenizer_config.json", 40, 40),
    ],
)
def test_folders_with_a_damaged_text_file(folder, name, count, most):
    path = folder / name
    text, names = path.read_text(), sorted(os.listdir(folder))
    used = 0
    try:
        for random in cases(name, count):
            path.write_text(damaged_json(json.loads(text), random))
            used += tried(random, lambda: run(pretrained.load(folder)))
    finally:
        path.write_text(text)
    assert used <= most
    assert sorted(os.listdir(folder)) == names


def test_folders_with_damaged_weights(folder, whole):
    path = folder / "model-00001-of-00002.safetensors"
    data, used = path.read_bytes(), 0
    try:
        for random in cases("shard", 60):
            path.write_bytes(damaged_bytes(data, random, 1500))
            used += tried(random, lambda: run(pretrained.load(folder)))
        header, tensors = apart(data)
        for random in cases("shard's header", 60):
            path.write_bytes(together(damaged_value(header, random), tensors))
            used += tried(random, lambda: run(pretrained.load(folder)))
    finally:
        path.write_bytes(data)
    assert used < 40


# Tokenizers


def test_damaged_tokenizers(tmp_path, byte_pairs):
    path, whole = tmp_path / "tokenizer.json", json.loads(byte_pairs.to_json())

    def use(tokenizer):
        tokenizer.decode(tokenizer.encode("the cat sat <end>"))
        from_json(tokenizer.to_json())

    for random in cases("tokenizer.json", 200):
        path.write_text(damaged_json(whole["tokenizer"], random))
        tried(random, lambda: use(BytePairTokenizer.from_file(path, "<end>")))
    kinds = [whole, json.loads(CharTokenizer("the cat").to_json())]
    kinds.append({"kind": "words", "words": ["the", "cat", "sat", "."], "end": "."})
    for random in cases("to_json", 100):
        damaged = damaged_json(random.choice(kinds), random)
        tried(random, lambda text=damaged: from_json(text).decode([0, 1]))


@pytest.mark.parametrize("depth", [100, 127, 900, 990, 1000, 100_000])
def test_nesting_of_any_depth(depth):
    inner = '{"a": ' * depth + "1" + "}" * depth
    with pytest.raises(ValueError, match=r": expected .*, got "):
        from_json('{"kind": "byte pairs", "end_id": null, "tokenizer": ' + inner + "}")
