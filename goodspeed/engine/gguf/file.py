"""Reads a GGUF file: its metadata into Python values, its weights as bytes that stay on disk until they are used.

The `gguf` package reads the header of SmolLM2-135M, with 98,052 strings, in 1.7 s, transformers its tokenizer in 3.2 s;
`read` takes 0.03 s. A node is to serve within seconds. Counts and lengths of the file are bounded before they are used.
"""

import math
import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from goodspeed.engine.paged.chunks import MAX_PARALLEL
from goodspeed.errors import CheckpointError, UnsupportedModelError, reason

MAGIC = b"GGUF"

VERSIONS = (2, 3)
"""Versions with the same layout. Version 1, with shorter counts, was replaced in 2023."""

SPLITS = "split.count"
"""Field with the number of files that a model is split into."""

MAX_FIELDS, MAX_TENSORS, MAX_ITEMS = 1 << 14, 1 << 18, 1 << 23
"""Most fields, tensors, and values in arrays; vocabularies have a million."""

COUNT_LIMIT = 1 << 24
"""Sizes of a model, such as its heads or its context, are below this."""

MAX_NAME_BYTES, MAX_DIMENSIONS, MAX_NESTING = 1 << 16, 4, 4

KINDS = {
    int(number): (name, int(block), int(block_bytes))
    for kinds in (
        "0 F32 1 4, 1 F16 1 2, 30 BF16 1 2, 2 Q4_0 32 18, 3 Q4_1 32 20, 6 Q5_0 32 22, 7 Q5_1 32 24, 8 Q8_0 32 34",
        "10 Q2_K 256 84, 11 Q3_K 256 110, 12 Q4_K 256 144, 13 Q5_K 256 176, 14 Q6_K 256 210",
        "19 IQ1_S 256 50, 29 IQ1_M 256 56, 16 IQ2_XXS 256 66, 17 IQ2_XS 256 74, 22 IQ2_S 256 82, 18 IQ3_XXS 256 98",
        "21 IQ3_S 256 110, 20 IQ4_NL 32 18, 23 IQ4_XS 256 136, 34 TQ1_0 256 54, 35 TQ2_0 256 66",
        "39 MXFP4 32 17, 40 NVFP4 64 36",
    )
    for number, name, block, block_bytes in map(str.split, kinds.split(","))
}
"""Storage types of weights by their number in the file: name, weights of a block, bytes of a block."""

NUMBERS: dict[int, np.dtype[Any]] = dict(
    zip((*range(8), 10, 11, 12), map(np.dtype, "u1 i1 <u2 <i2 <u4 <i4 <f4 ? <u8 <i8 <f8".split()), strict=True)
)
"""Types of numbers by their number in the file."""

STRING, ARRAY = 8, 9

KEPT, NEAREST = "goodspeed.kept_tokens", "goodspeed.nearest_kept"
"""Fields of a draft model that has rows for some tokens only (`pruned_vocabulary.py`)."""

MASK, PARALLEL = "goodspeed.pard_token", "goodspeed.pard_num_tokens"
"""Fields of a draft model for parallel drafting (PARD): the mask's id, and the tokens drafted in one pass."""

FLOATS = {"F16": np.float16, "F32": np.float32}

T = TypeVar("T", str, int)


@dataclass(frozen=True)
class StoredTensor:
    """A weight as the file stores it."""

    kind: str  # name of the storage type, such as "Q4_1"
    shape: tuple[int, ...]  # rows first, as in torch
    data: NDArray[np.uint8]  # [rows, bytes of a row], on disk; rows: of all dimensions but the last

    def parts(self, num_rows: int) -> Iterator["StoredTensor"]:
        """Divides a matrix into parts of at most num_rows rows."""
        for first in range(0, len(self.data), num_rows):
            data = self.data[first : first + num_rows]
            yield StoredTensor(self.kind, (len(data), self.shape[-1]), data)


@dataclass(frozen=True)
class GgufFile:
    """A file's metadata and weights."""

    name: str  # in messages
    fields: dict[str, Any]  # numbers, texts, and lists of them, by their keys
    tensors: dict[str, StoredTensor]

    @property
    def architecture(self) -> str:
        return str(self._needed("general.architecture", str))

    @property
    def context_len(self) -> int:
        """Tokens that the model is made for, prompt and generated ones together."""
        return self.count("context_length")

    @property
    def vocab_size(self) -> int:
        """Width of the logits; the tokenizer may have fewer tokens."""
        return len(self.items(NEAREST, int)) if NEAREST in self.fields else self.num_rows

    @property
    def num_rows(self) -> int:
        """Rows of the output matrix: one for each token, or for each kept one."""
        for name in ("output.weight", "token_embd.weight"):
            if name in self.tensors:
                return self.tensors[name].shape[0]
        if not self.tensors:
            what = "the GGUF file has a tokenizer and no weights"
            raise CheckpointError(f"{self.name}: {what}; name the model's own file, or give this one to --tokenizer")
        raise damaged(self.name, "it has no weight token_embd.weight")

    @property
    def parallel(self) -> tuple[int | None, int]:
        """Returns the mask's id and the number of tokens drafted in one pass (PARD); None and 1 without a mask."""
        if MASK not in self.fields:
            return None, 1
        for key, least, most in ((MASK, 0, self.vocab_size - 1), (PARALLEL, 1, MAX_PARALLEL)):
            if not least <= self._needed(key, int) <= most:
                raise self._wrong(key, self.fields[key])
        return self.fields[MASK], self.fields[PARALLEL]

    def items(self, key: str, kind: type[T]) -> list[T]:
        """Returns a list of values of one type, such as the tokens; CheckpointError if the field is something else."""
        found = self._needed(key, list)
        if not set(map(type, found)) <= {kind}:
            raise damaged(self.name, f"its field {shown(key)} is no list of {kind.__name__}")
        return list(found)

    def count(self, key: str, default: int | None = None) -> int:
        """Returns a count of the architecture; CheckpointError unless it is at least 1 and below COUNT_LIMIT, or
        missing with a default."""
        found: int = self._positive(key, default, COUNT_LIMIT, int)
        return found

    def number(self, key: str, default: float | None = None) -> float:
        """Returns a number of the architecture; CheckpointError unless it is positive, or missing with a default."""
        found: float = self._positive(key, default, math.inf, int, float)
        return found

    def _positive(self, key: str, default: float | None, limit: float, *kinds: type) -> Any:
        key = f"{self.architecture}.{key}"
        found: Any = self.fields.get(key, default)
        if isinstance(found, list):
            what = f"layers of different sizes ({shown(key)}) are not supported for GGUF files"
            raise UnsupportedModelError(f"{self.name}: {what}; use a checkpoint folder")
        if type(found) not in kinds or not 0 < found < limit:
            raise self._wrong(key, found)
        return found

    def _needed(self, key: str, kind: type) -> Any:
        if type(found := self.fields.get(key)) is not kind:
            raise self._wrong(key, found)
        return found

    def _wrong(self, key: str, found: object) -> CheckpointError:
        return damaged(self.name, f"its field {shown(key)} is {'missing' if found is None else ascii(found)[:80]}")


def shown(name: str) -> str:
    """Returns a name in the file for a message: printable, and short."""
    return ascii(name)[1:-1][:80]


def damaged(name: str, what: str) -> CheckpointError:
    return CheckpointError(f"{name}: the GGUF file is damaged: {what}; get it again")


def read(path: Path, name: str) -> GgufFile:
    """Reads the header and maps the weights. name: of the model, in messages.

    Raises CheckpointError (the file cannot be read, is damaged or incomplete, or one part of several) or
    UnsupportedModelError (another version, or a storage type that is unknown).
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if start == MAGIC else None
    except OSError as error:
        raise CheckpointError(f"{name}: it cannot be read ({reason(error)}); give a GGUF file") from error
    if mapped is None:
        what = "a Git LFS pointer; fetch it with `git lfs pull`" if start == b"vers" else "no GGUF file; get it again"
        raise CheckpointError(f"{name}: this is {what}, or give another one")
    header = _Header(name, mapped)
    try:
        return header.read()
    except struct.error as error:  # more was to be read than the file has
        raise damaged(name, "it ends within its header") from error


class _Header:
    """Reads from the file's start to the end of its header."""

    def __init__(self, name: str, mapped: mmap.mmap) -> None:
        self._name = name
        self._bytes = mapped
        self._at = len(MAGIC)
        self._num_items = 0  # in all arrays so far

    def read(self) -> GgufFile:
        if (version := self._u32()) not in VERSIONS:
            what = f"GGUF of version {version} is not supported"
            raise UnsupportedModelError(f"{self._name}: {what}; use a file of version 3, little-endian")
        num_tensors, num_fields = self._u64(), self._u64()
        self._bound("tensors", num_tensors, MAX_TENSORS)
        self._bound("fields", num_fields, MAX_FIELDS)
        fields: dict[str, Any] = {}
        for _ in range(num_fields):
            key = self._text(MAX_NAME_BYTES)
            fields[key] = self._value(self._u32())
        if (num_files := fields.get(SPLITS, 1)) not in (0, 1):
            what = f"it is one of {ascii(num_files)[:20]} files of a model"
            raise CheckpointError(f"{self._name}: {what}; merge them with llama.cpp's `llama-gguf-split --merge`")
        places = [self._place() for _ in range(num_tensors)]
        start = self._start_of_data(fields)
        tensors = {name: self._tensor(name, shape, kind, start + offset) for name, shape, kind, offset in places}
        if len(tensors) < num_tensors:
            raise damaged(self._name, "two weights have the same name")
        return GgufFile(self._name, fields, tensors)

    def _value(self, kind: int, nesting: int = 0) -> Any:
        if kind == STRING:
            return self._text(len(self._bytes))
        if kind != ARRAY:
            return self._numbers(kind, 1)[0]
        kind, count = self._u32(), self._u64()
        self._num_items += count
        self._bound("values in arrays", self._num_items, MAX_ITEMS)
        if kind == STRING:
            return self._texts(count)
        if kind != ARRAY:
            return self._numbers(kind, count)
        if nesting == MAX_NESTING:
            raise damaged(self._name, f"arrays are nested deeper than {MAX_NESTING}")
        return [self._value(ARRAY, nesting + 1) for _ in range(count)]

    def _numbers(self, kind: int, count: int) -> list[Any]:
        dtype = NUMBERS.get(kind)
        if dtype is None:
            raise damaged(self._name, f"a value has type {kind}, which does not exist")
        at = self._skip(count * dtype.itemsize)
        return list(np.frombuffer(self._bytes, dtype, count, at).tolist())

    def _texts(self, count: int) -> list[str]:
        """Reads an array of texts: most of a header's bytes, so that this loop decides how long reading takes."""
        content, at, end = self._bytes, self._at, len(self._bytes)
        length_at: Callable[..., tuple[int]] = struct.Struct("<Q").unpack_from
        found = []
        try:
            for _ in range(count):
                (length,) = length_at(content, at)
                at += 8 + length
                if at > end:
                    raise struct.error
                found.append(content[at - length : at].decode())
        except UnicodeDecodeError as error:
            raise self._no_text(error) from error
        self._at = at
        return found

    def _text(self, most: int) -> str:
        length = self._u64()
        self._bound("bytes of a text", length, most)
        at = self._skip(length)
        try:
            return self._bytes[at : self._at].decode()
        except UnicodeDecodeError as error:
            raise self._no_text(error) from error

    def _no_text(self, error: UnicodeDecodeError) -> CheckpointError:
        return damaged(self._name, f"a text in its header is not UTF-8 ({error.reason})")

    def _u32(self) -> int:
        return int(self._numbers(4, 1)[0])

    def _u64(self) -> int:
        return int(self._numbers(10, 1)[0])

    def _skip(self, num_bytes: int) -> int:
        """Moves on; returns the place before."""
        at = self._at
        if num_bytes > len(self._bytes) - at:
            raise struct.error
        self._at = at + num_bytes
        return at

    def _bound(self, what: str, count: int, most: int) -> None:
        if count > most:
            raise damaged(self._name, f"its header says {count} {what}, but at most {most} are possible")

    def _place(self) -> tuple[str, tuple[int, ...], int, int]:
        """Reads a weight's name, shape, storage type and offset."""
        name, num_dimensions = self._text(MAX_NAME_BYTES), self._u32()
        self._bound(f"dimensions of {shown(name)}", num_dimensions, MAX_DIMENSIONS)
        shape = tuple(reversed(self._numbers(10, num_dimensions)))
        return name, shape, self._u32(), self._u64()

    def _start_of_data(self, fields: dict[str, Any]) -> int:
        alignment = fields.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment.bit_count() != 1:
            raise damaged(self._name, f"general.alignment is {ascii(alignment)[:40]}, but must be a power of two")
        return -(-self._at // alignment) * alignment

    def _tensor(self, name: str, shape: tuple[int, ...], number: int, start: int) -> StoredTensor:
        if number not in KINDS:
            what = f"{shown(name)} is stored as type {number}, which is unknown"
            raise UnsupportedModelError(f"{self._name}: {what}; use a file in Q4_1, Q8_0 or F16")
        kind, block, block_bytes = KINDS[number]
        if not shape or min(shape) < 1 or shape[-1] % block:
            what = f"{shown(name)} has the shape {list(shape)}, which {kind} cannot have"
            raise damaged(self._name, what)
        rows, row_bytes = math.prod(shape[:-1]), shape[-1] // block * block_bytes
        if start + rows * row_bytes > len(self._bytes):
            missing = start + rows * row_bytes - len(self._bytes)
            what = f"{shown(name)} ends {missing} bytes beyond the file's end"
            raise CheckpointError(f"{self._name}: the GGUF file is incomplete: {what}; get it again")
        data = np.frombuffer(self._bytes, np.uint8, rows * row_bytes, start)
        return StoredTensor(kind, shape, data.reshape(rows, row_bytes))


def dequantised(stored: StoredTensor) -> NDArray[np.float32]:
    """Returns the weights in float32, in the tensor's shape."""
    if stored.kind in FLOATS:
        return stored.data.view(FLOATS[stored.kind]).astype(np.float32).reshape(stored.shape)
    from gguf import GGMLQuantizationType, quants

    found: NDArray[np.float32] = quants.dequantize(stored.data, GGMLQuantizationType[stored.kind])
    return found.astype(np.float32, copy=False).reshape(stored.shape)
