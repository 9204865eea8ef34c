"""GGUF files: metadata and weights of one model in one file, often with 4 to 8 bits a weight.

The header is read here, because a header must be checked before it is believed: every count,
length and offset is held against the size of the file. Weights are turned into floats by the
`gguf` package. Source: the GGUF specification, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tiny_lm.extras import need
from tiny_lm.shapes import fail

# Value types of the metadata: struct code of each number, then the three that are not numbers.
NUMBERS = dict(enumerate("BbHhIif")) | {10: "Q", 11: "q", 12: "d"}
BOOLEAN, TEXT, ARRAY = 7, 8, 9
CHUNK = 1 << 20  # weights turned into floats at a time: 4 MB, so that the peak of memory stays low


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies: its shape, largest stride first, its type, and its bytes."""

    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


class GGUFFile:
    """An open GGUF file: `metadata`, `tensors` by name, and `read(name)`.

    Raises ValueError for a file of another kind, one cut short, and one whose header claims
    more than the file holds.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # mmap refuses an empty file with a ValueError
            fail("GGUF", "a file that can be read", self.path, str(error))
        header = _Header(self._data, self.path.name)
        self.metadata = header.metadata()
        self.tensors = header.tensors(self.metadata.get("general.alignment", 32))

    def read(self, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
        """One tensor as floats: `name -> [rows, columns]` or `[columns]`.

        Raises ValueError for a type that the gguf package does not turn into floats.
        """
        gguf = need("gguf")
        stored = self.tensors[name]
        kind = gguf.GGMLQuantizationType(stored.kind)
        columns = stored.shape[-1]
        raw = np.frombuffer(self._data, np.uint8, stored.size, stored.start)
        raw = raw.reshape(prod(stored.shape[:-1]), -1)
        floats = torch.empty(len(raw), columns, dtype=dtype)
        step = max(1, CHUNK // columns)
        for first in range(0, len(raw), step):
            try:
                rows = gguf.dequantize(raw[first : first + step], kind)
            except NotImplementedError:
                fail("GGUF", f"a type of weight that can be read for {name}", kind.name)
            rows = np.require(rows, np.float32, "W")  # a copy where it views the file
            floats[first : first + step] = torch.from_numpy(rows)
        return floats.reshape(stored.shape)


class _Header:
    """A cursor over the header; nothing is read beyond the end of the file."""

    def __init__(self, data: mmap.mmap, name: str):
        self.data, self.name, self.at = data, name, 0
        if data[:4] != b"GGUF":
            fail("GGUF", "a file that starts with GGUF", f"{data[:4]!r} in {name}")
        self.at = 4
        version = self.number("I")
        if version not in (2, 3):
            fail("GGUF", "version 2 or 3, little-endian", f"version {version} in {name}")
        self.n_tensors, self.n_entries = self.number("Q"), self.number("Q")

    def number(self, code: str) -> Any:
        self.expect(struct.calcsize("<" + code))
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self) -> str:
        length = self.number("Q")
        self.expect(length)
        start, self.at = self.at, self.at + length
        try:
            return self.data[start : self.at].decode()
        except UnicodeDecodeError:
            fail("GGUF", "text in UTF-8", f"{self.data[start : self.at][:20]!r} in {self.name}")

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind == BOOLEAN:
            return self.number("B") != 0
        if kind == ARRAY:
            return self.array()
        if kind not in NUMBERS:
            fail("GGUF", "a known type of metadata", f"type {kind} in {self.name}")
        return self.number(NUMBERS[kind])

    def array(self) -> list:
        kind, length = self.number("I"), self.number("Q")
        if kind == TEXT:
            self.expect(8 * length)  # every text has its length before it
            return [self.text() for _ in range(length)]
        if kind == ARRAY:
            fail("GGUF", "arrays of numbers or texts", f"an array of arrays in {self.name}")
        code = "?" if kind == BOOLEAN else NUMBERS.get(kind)
        if code is None:
            fail("GGUF", "a known type of metadata", f"type {kind} in {self.name}")
        size = length * struct.calcsize("<" + code)
        self.expect(size)
        start, self.at = self.at, self.at + size
        return list(struct.unpack_from(f"<{length}{code}", self.data, start))

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self.n_entries):
            key = self.text()
            if key in found:
                fail("GGUF", "every key once", f"{key!r} twice in {self.name}")
            found[key] = self.value(self.number("I"))
        return found

    def tensors(self, alignment: Any) -> dict[str, StoredTensor]:
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            fail("GGUF", "an alignment that is a power of two", repr(alignment))
        claims = {}
        for _ in range(self.n_tensors):
            name, n_axes = self.text(), self.number("I")
            if name in claims or not 1 <= n_axes <= 4:
                fail("GGUF", "every tensor once, of 1 to 4 axes", f"{name!r} in {self.name}")
            shape = tuple(self.number("Q") for _ in range(n_axes))[::-1]
            claims[name] = (shape, self.number("I"), self.number("Q"))
        base = -(-self.at // alignment) * alignment
        sizes = {int(kind): sizes for kind, sizes in need("gguf").GGML_QUANT_SIZES.items()}
        found = {name: self.stored(name, base, sizes, *claim) for name, claim in claims.items()}
        # Tensors that share bytes would let a small file fill the memory.
        if base + sum(tensor.size for tensor in found.values()) > max(len(self.data), base):
            fail("GGUF", "tensors that fit in the file", f"more in {self.name}", "cut short?")
        return found

    def stored(
        self, name: str, base: int, sizes: dict, shape: tuple, kind: int, offset: int
    ) -> StoredTensor:
        if kind not in sizes:
            fail("GGUF", f"a known type of weight for {name}", f"type {kind}")
        block, block_size = sizes[kind]
        if min(shape) < 1 or shape[-1] % block:
            fail("GGUF", f"rows of whole blocks of {block} for {name}", list(shape))
        size = prod(shape) // block * block_size
        if base + offset + size > len(self.data):
            got = f"{name} ending at byte {base + offset + size} of {len(self.data)}"
            fail("GGUF", "tensors that lie in the file", f"{got} in {self.name}", "cut short?")
        return StoredTensor(shape, kind, base + offset, size)

    def expect(self, size: int) -> None:
        left = len(self.data) - self.at
        if size > left:
            fail("GGUF", f"{size} more bytes in {self.name}", left, "cut short?")
