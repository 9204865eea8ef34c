"""gguf_file.py: a header is believed only as far as the file is long."""

import struct
import sys
import time
import warnings

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_writers import in_gguf, small_model, write_gguf

from tiny_lm.formats.gguf_file import CHUNK, GGUFFile


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def tensor(name, shape, kind, offset):
    """`shape` as the file has it: the length of a row first."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def build(
    path, entries=(), tensors=(), data=b"", *, magic=b"GGUF", version=3, claimed=None, align=32
):
    """A file byte by byte; `claimed` are the numbers of tensors and entries it says it has."""
    counts = claimed or (len(tensors), len(entries))
    start = magic + struct.pack("<IQQ", version, *counts) + b"".join([*entries, *tensors])
    path.write_bytes(start + bytes(-len(start) % align) + data)
    return path


# What is read is what was written, and what the gguf package reads


def test_every_kind_of_metadata(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    kinds = gguf.GGUFValueType
    wanted = {
        "u8": (200, kinds.UINT8), "i8": (-3, kinds.INT8), "u16": (60_000, kinds.UINT16),
        "i16": (-30_000, kinds.INT16), "u32": (2**32 - 1, kinds.UINT32), "i32": (-5, kinds.INT32),
        "u64": (2**63, kinds.UINT64), "i64": (-(2**60), kinds.INT64), "f32": (0.5, kinds.FLOAT32),
        "f64": (0.1, kinds.FLOAT64), "yes": (True, kinds.BOOL), "text": ("é日", kinds.STRING),
    }  # fmt: skip
    for key, (value, kind) in wanted.items():
        writer.add_key_value(key, value, kind)
    arrays = {
        "numbers": [1, -2, 3],
        "floats": [0.5, 0.25],
        "texts": ["a", "é"],
        "flags": [True, False],
    }
    for key, value in arrays.items():
        writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = GGUFFile(tmp_path / "a.gguf").metadata
    assert found == {"general.architecture": "llama"} | arrays | {
        key: value for key, (value, _) in wanted.items()
    }


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_1", "Q5_0"])
def test_weights_are_those_of_the_gguf_package(tmp_path, kind):
    path = write_gguf(tmp_path / "a.gguf", small_model(), kind=kind)
    file = GGUFFile(path)
    theirs = gguf.GGUFReader(path).tensors
    assert {t.name for t in theirs} == set(file.tensors)
    for one in theirs:
        expected = torch.from_numpy(np.array(gguf.dequantize(one.data, one.tensor_type)))
        assert torch.equal(file.read(one.name), expected)
        assert file.tensors[one.name].shape == tuple(expected.shape)
        assert torch.equal(file.read(one.name, torch.bfloat16), expected.bfloat16())
    assert {name: t.shape for name, t in file.tensors.items()} == {
        name: tuple(t.shape) for name, t in in_gguf(small_model()).items()
    }


def test_a_tensor_longer_than_a_chunk_is_whole(tmp_path):
    rows = CHUNK // 32 + 3
    weights = np.random.default_rng(0).normal(size=(rows, 32)).astype(np.float32)
    data = gguf.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    path = build(tmp_path / "a.gguf", [], [tensor("w", [32, rows], 8, 0)], data.tobytes())
    expected = gguf.dequantize(data, gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(GGUFFile(path).read("w").numpy(), expected)


def test_what_was_read_can_be_written_to(tmp_path):
    """A view of the file would be read-only, of which torch warns, or gone with it."""
    path = build(tmp_path / "a.gguf", [], [tensor("w", [2], 0, 0)], struct.pack("<2f", 3, 4))
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            weight = GGUFFile(path).read("w")
    finally:
        torch.set_warn_always(False)
    weight += 1
    assert weight.tolist() == [4, 5]
    assert GGUFFile(path).read("w").tolist() == [3, 4]


@pytest.mark.parametrize("align", [8, 32, 64])
@pytest.mark.parametrize("version", [2, 3])
def test_offsets_count_from_the_aligned_end_of_the_header(tmp_path, align, version):
    path = build(
        tmp_path / "a.gguf",
        [entry("general.alignment", 4, struct.pack("<I", align))],
        [tensor("w", [2], 0, 2 * align)],
        bytes(2 * align) + struct.pack("<2f", 3, 4),
        align=align,
        version=version,
    )
    assert GGUFFile(path).read("w").tolist() == [3, 4]


# Headers that lie


HUGE = 2**62
one = struct.pack("<f", 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"magic": b"GGML"}, r"a file that starts with GGUF, got b'GGML' in a.gguf"),
        ({"version": 1}, r"version 2 or 3, little-endian, got version 1"),
        ({"version": 3 << 24}, r"version 2 or 3, little-endian, got version 50331648"),
        ({"claimed": (0, HUGE)}, r"\d more bytes in a.gguf, got \d+ \(cut short\?\)"),
        ({"claimed": (HUGE, 0)}, r"\d more bytes in a.gguf, got \d+ \(cut short\?\)"),
        ({"entries": [struct.pack("<Q", HUGE)]}, rf"{HUGE} more bytes in a.gguf, got"),
        ({"entries": [entry("k", 8, struct.pack("<Q", HUGE))]}, rf"{HUGE} more bytes"),
        ({"entries": [entry("k", 9, struct.pack("<IQ", 8, HUGE))]}, rf"{8 * HUGE} more bytes"),
        ({"entries": [entry("k", 9, struct.pack("<IQ", 4, HUGE))]}, rf"{4 * HUGE} more bytes"),
        ({"entries": [entry("k", 9, struct.pack("<IQ", 0, HUGE))]}, rf"{HUGE} more bytes"),
        (
            {"entries": [entry("k", 9, struct.pack("<IQ", 9, 1))]},
            r"arrays of numbers or texts, got",
        ),
        ({"entries": [entry("k", 9, struct.pack("<IQ", 13, 1))]}, r"a known type of metadata, got"),
        ({"entries": [entry("k", 13, b"")]}, r"a known type of metadata, got type 13 in a.gguf"),
        ({"entries": [entry("k", 0, b"1")] * 2}, r"every key once, got 'k' twice in a.gguf"),
        ({"entries": [text("k")[:8] + b"\xff"]}, r"text in UTF-8, got b'\\xff' in a.gguf"),
        (
            {"entries": [entry("general.alignment", 4, struct.pack("<I", 24))]},
            r"an alignment that is a power of two, got 24",
        ),
        (
            {"entries": [entry("general.alignment", 8, text("32"))]},
            r"an alignment that is a power of two, got '32'",
        ),
        (
            {"tensors": [tensor("w", [1], 0, 0)] * 2, "data": one * 2},
            r"every tensor once, of 1 to 4",
        ),
        ({"tensors": [tensor("w", [], 0, 0)], "data": one}, r"every tensor once, of 1 to 4 axes"),
        (
            {"tensors": [tensor("w", [1] * 5, 0, 0)], "data": one},
            r"every tensor once, of 1 to 4 axes",
        ),
        ({"tensors": [text("w") + struct.pack("<I", 2**31)]}, r"of 1 to 4 axes, got 'w' in a.gguf"),
        (
            {"tensors": [tensor("w", [1], 99, 0)], "data": one},
            r"a known type of weight for w, got type",
        ),
        (
            {"tensors": [tensor("w", [0], 0, 0)], "data": one},
            r"rows of whole blocks of 1 for w, got \[0\]",
        ),
        (
            {"tensors": [tensor("w", [16], 8, 0)], "data": bytes(34)},
            r"rows of whole blocks of 32 for w, got",
        ),
        (
            {"tensors": [tensor("w", [2], 0, 0)], "data": one},
            r"tensors that lie in the file, got w endi",
        ),
        (
            {"tensors": [tensor("w", [1], 0, 32)], "data": one},
            r"got w ending at byte \d+ of \d+ in a.gg",
        ),
        (
            {"tensors": [tensor("w", [1], 0, HUGE)], "data": one},
            r"tensors that lie in the file, got w",
        ),
        (
            {"tensors": [tensor("w", [HUGE, HUGE], 0, 0)], "data": one},
            r"tensors that lie in the file",
        ),
        # 2^64 numbers: their product would be 0 in 64 bits
        (
            {"tensors": [tensor("w", [2**32, 2**32], 0, 0)], "data": one},
            r"tensors that lie in the file",
        ),
        (
            {"tensors": [tensor(name, [8], 0, 0) for name in "abcdefgh"], "data": one * 8},
            r"tensors that fit in the file, got more in a.gguf \(cut short\?\)",
        ),
    ],
)
def test_a_header_that_lies_is_refused_at_once(tmp_path, arguments, message):
    path = build(tmp_path / "a.gguf", **arguments)
    start = time.perf_counter()
    with pytest.raises(ValueError, match="^GGUF: expected .*" + message):
        GGUFFile(path)
    assert time.perf_counter() - start < 1


def test_a_type_without_a_reader_is_named(tmp_path):
    """Whole numbers are allowed in a file, but no weights of a model are."""
    path = build(tmp_path / "a.gguf", [], [tensor("w", [4], 24, 0)], bytes(4))
    with pytest.raises(ValueError, match=r"a type of weight that can be read for w, got I8"):
        GGUFFile(path).read("w")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        *(
            (what, "a file that can be read, got .*a.gguf")
            for what in ("missing", "empty", "folder")
        ),
        ("short", "a file that starts with GGUF, got b'GGU' in a.gguf"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path, what, message):
    path = tmp_path / "a.gguf"
    if what == "folder":
        path.mkdir()
    elif what != "missing":
        path.write_bytes(b"GGU" if what == "short" else b"")
    with pytest.raises(ValueError, match=f"GGUF: expected {message}"):
        GGUFFile(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "a.gguf", small_model()).read_bytes()


@settings(deadline=None, max_examples=100, derandomize=True)
@given(data=st.data())
def test_a_file_cut_short_anywhere_is_refused(whole, tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "a.gguf"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ValueError, match=r"^GGUF: expected "):
        GGUFFile(path)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(data=st.data())
def test_a_damaged_header_is_refused_or_harmless(whole, tmp_path_factory, data):
    """Any byte of the header, any value: an error in the one form or a file that can be used."""
    resource = pytest.importorskip("resource", reason="memory is not counted on this system")
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, 1900))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "a.gguf"
    path.write_bytes(damaged)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        file = GGUFFile(path)
        for name in file.tensors:
            file.read(name)
    except ValueError as error:
        assert str(error).startswith("GGUF: expected ")
    # in kilobytes, on a Mac in bytes; nothing here has a reason to take 100 MB
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000 * (1024 if sys.platform == "darwin" else 1)
