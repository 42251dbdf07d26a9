"""A GGUF file is read whole, or refused in one line that says what is wrong with it."""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from goodspeed.engine.gguf import file as module
from goodspeed.engine.gguf.file import KINDS, NEAREST, read
from goodspeed.errors import CheckpointError
from tests import gguf_files
from tests.gguf_files import FIELDS, TOKENS, WEIGHTS, content


def test_an_embedded_model_is_what_the_gguf_package_reads() -> None:
    path = Path(gguf_files.made("tiny-draft-s"))
    found, theirs = read(path, "it"), gguf.GGUFReader(path)
    values = {key: field.contents() for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert found.fields == values
    assert [*found.tensors] == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        here = found.tensors[tensor.name]
        assert (here.kind, here.shape) == (tensor.tensor_type.name, tuple(reversed(tensor.shape.tolist())))
        assert here.data.tobytes() == tensor.data.tobytes()
    assert (found.architecture, found.context_len, found.vocab_size) == ("llama", 2048, 4096)


def test_storage_types_are_those_that_the_gguf_package_dequantises() -> None:
    kinds = [gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16, *gguf.quants._type_traits]
    assert {int(kind): (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in kinds} == KINDS


@pytest.mark.parametrize("version", [2, 3])
def test_values_of_every_type_are_read(path: Path, version: int) -> None:
    values: list[tuple[int, Any]] = [
        *((0, 200), (1, -3), (2, 60_000), (3, -30_000), (4, 4_000_000_000), (5, -2_000_000_000), (6, 0.5)),
        *((7, True), (8, "ä"), (10, 1 << 63), (11, -(1 << 62)), (12, 0.1)),
    ]
    fields = {f"field.{kind}": value for kind, value in enumerate(values)}
    fields |= {f"array.{kind}": (9, (kind, [value, value])) for kind, value in values}
    fields |= {"empty": (9, (8, [])), "nested": (9, (9, [(4, [1, 2]), (8, ["x"])]))}
    path.write_bytes(content(fields, {}, version))
    found = read(path, "it").fields
    assert [found[f"field.{kind}"] for kind in range(len(values))] == [value for _, value in values]
    assert all(found[f"array.{kind}"] == [value, value] for kind, value in values)
    assert (found["empty"], found["nested"]) == ([], [[1, 2], ["x"]])


def test_weights_have_rows_first_and_stay_on_disk(path: Path) -> None:
    stored = bytes(range(256)) * 2
    weights = {"first": ((4,), 0, bytes(16)), "matrix": ((32, 4, 3), 8, stored[: 12 * 34])}
    weights |= {"last": ((256,), 14, stored[:210])}
    path.write_bytes(content({"general.alignment": (4, 32)}, weights))
    found = read(path, "it").tensors
    assert (found["matrix"].kind, found["matrix"].shape, found["matrix"].data.shape) == ("Q8_0", (3, 4, 32), (12, 34))
    assert found["matrix"].data.tobytes() == stored[: 12 * 34]
    assert (found["last"].shape, found["last"].data.tobytes()) == ((256,), stored[:210])
    assert not found["matrix"].data.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        found["matrix"].data[0, 0] = 1


def test_weights_begin_where_the_alignment_says(path: Path) -> None:
    made = content({"general.alignment": (4, 128)}, {"it": ((4,), 0, b"")})
    path.write_bytes(made + bytes(-len(made) % 128) + np.arange(4, dtype=np.float32).tobytes())
    assert read(path, "it").tensors["it"].data.view(np.float32).tolist() == [[0.0, 1.0, 2.0, 3.0]]


GOOD = content()
FIRST_KEY = 4 + 4 + 8 + 8


def changed(at: int, to: bytes) -> bytes:
    return GOOD[:at] + to + GOOD[at + len(to) :]


def count(number: int) -> bytes:
    return struct.pack("<Q", number)


def with_field(kind: int, of: Any) -> bytes:
    return content(FIELDS | {"x": (kind, of)})


def with_weight(shape: tuple[int, ...], kind: int, stored: bytes = b"") -> bytes:
    return content(weights=WEIGHTS | {"odd": (shape, kind, stored)})


def nested(depth: int) -> tuple[int, Any]:
    return (4, [1]) if depth == 0 else (9, [nested(depth - 1)])


DAMAGED = {
    "no GGUF file": [b"", b"GG", b"safetensors", b"\x00" * 100],
    "Git LFS pointer": [b"version https://git-lfs.github.com/spec/v1\n"],
    "ends within its header": [GOOD[:FIRST_KEY], GOOD[:100], b"GGUF", with_field(9, (4, []))[:-500]],
    "version 1 ": [content(version=1)],
    "version 4 ": [content(version=4)],
    r"9223372036854775808 tensors": [changed(8, count(1 << 63))],
    r"1099511627776 fields": [changed(16, count(1 << 40))],
    "bytes of a text": [changed(FIRST_KEY, count(1 << 62)), changed(FIRST_KEY, count(1 << 17))],
    "values in arrays": [GOOD.replace(count(len(TOKENS)) + count(1), count(1 << 60) + count(1))],
    "not UTF-8": [with_field(8, b"\xff"), with_field(9, (8, ["a", b"\xc3"])), GOOD.replace(b"general", b"gener\xe4l")],
    "type 13, which does not exist": [GOOD.replace(struct.pack("<I", 4) + struct.pack("<I", 512), count(13))],
    "nested deeper": [with_field(9, nested(8))],
    "one of 4 files": [content(FIELDS | {"split.count": (2, 4)})],
    "general.alignment is 0": [content(FIELDS | {"general.alignment": (4, 0)})],
    "general.alignment is 48": [content(FIELDS | {"general.alignment": (4, 48)})],
    r"odd is stored as type 36, which is unknown": [with_weight((32,), 36)],
    r"odd has the shape \[31\], which Q4_1 cannot have": [with_weight((31,), 3)],
    r"odd has the shape \[0, 32\]": [with_weight((32, 0), 3)],
    r"odd has the shape \[\]": [with_weight((), 0)],
    "5 dimensions of odd": [with_weight((1, 1, 1, 1, 1), 0)],
    "odd ends .* beyond the file's end": [with_weight((1 << 60, 1 << 60), 0), with_weight((40,), 0, b"1234")],
    "norm.weight ends 1 bytes beyond": [GOOD[:-1]],
    "same name": [content(weights=dict.fromkeys("ab", ((4,), 0, bytes(16)))).replace(count(1) + b"b", count(1) + b"a")],
}


@pytest.mark.parametrize(("told", "made"), [(told, made) for told, all_made in DAMAGED.items() for made in all_made])
def test_a_damaged_file_is_refused_in_one_line(path: Path, told: str, made: bytes) -> None:
    path.write_bytes(made)
    with pytest.raises(CheckpointError, match=told) as raised:
        read(path, "some.gguf")
    assert str(raised.value).startswith("some.gguf: ")
    assert "\n" not in str(raised.value)


def test_every_truncation_and_every_changed_byte_is_read_or_refused(path: Path) -> None:
    for at in range(0, len(GOOD), 3):
        for made in (GOOD[:at], changed(at, b"\xff"), changed(at, b"\x00")):
            path.write_bytes(made)
            try:
                found = read(path, "it")
            except CheckpointError:
                continue
            assert len(made) == len(GOOD)
            assert sum(tensor.data.nbytes for tensor in found.tensors.values()) <= len(GOOD)


def test_arrays_are_bounded_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ITEMS", 20)
    path.write_bytes(GOOD)
    read(path, "it")
    path.write_bytes(with_field(9, (4, list(range(6)))))
    with pytest.raises(CheckpointError, match="21 values in arrays"):
        read(path, "it")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "no.gguf", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(CheckpointError, match=f"it cannot be read .{why}.*; give a GGUF file"):
            read(path, "no.gguf")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"general.architecture": (4, 1)}, "general.architecture is 1"),
        ({"llama.context_length": (4, 0)}, "llama.context_length is 0"),
        ({"llama.context_length": (6, 1.0)}, "llama.context_length is 1.0"),
        ({"general.architecture": (8, "a\nb")}, r"its field a\\nb.context_length is missing"),
    ],
)
def test_settings_that_cannot_be_are_refused(path: Path, fields: gguf_files.Fields, told: str) -> None:
    path.write_bytes(content(FIELDS | fields))
    with pytest.raises(CheckpointError, match=told):
        assert read(path, "it").context_len


def test_a_mask_for_parallel_drafts_is_read_and_checked(path: Path) -> None:
    def parallel(**fields: int) -> tuple[int | None, int]:
        rows = {NEAREST: (9, (4, [0] * 50))}
        path.write_bytes(content(FIELDS | rows | {f"goodspeed.{key}": (4, value) for key, value in fields.items()}))
        return read(path, "it").parallel

    assert parallel() == (None, 1)
    assert parallel(pard_token=49, pard_num_tokens=4) == (49, 4)
    for fields, told in (
        ({"pard_token": 50, "pard_num_tokens": 4}, "pard_token is 50"),
        ({"pard_token": 0}, "pard_num_tokens is missing"),
        ({"pard_token": 0, "pard_num_tokens": 65}, "pard_num_tokens is 65"),
        ({"pard_token": 0, "pard_num_tokens": 0}, "pard_num_tokens is 0"),
    ):
        with pytest.raises(CheckpointError, match=f"damaged: its field goodspeed.{told}"):
            parallel(**fields)


def test_missing_settings_are_named(path: Path) -> None:
    path.write_bytes(content({}, {}))
    found = read(path, "it")
    for name, told in (
        ("architecture", "general.architecture is missing"),
        ("vocab_size", "a tokenizer and no weights"),
    ):
        with pytest.raises(CheckpointError, match=told):
            getattr(found, name)
