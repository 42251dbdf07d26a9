"""The trial at the start finds what would give a row other bits beside others, and a pass that fails changes nothing.

`test_any_engine.py` compares the bits themselves.
"""

import errno
import io
import os
import tempfile
import tracemalloc
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import openvino as ov
import pytest
import torch
from openvino import opset13 as ops

from goodspeed.engine import engines
from goodspeed.engine.gguf.file import StoredTensor, read
from goodspeed.engine.openvino import loading, weights
from goodspeed.engine.openvino.model import Compiled, Passes, Rows
from goodspeed.engine.openvino.weights import Constants
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.errors import UnsupportedModelError
from goodspeed.wire.descriptors import OWN
from tests.engine import gguf_models

DIFFER = r"its logits depend on what else is computed .*; use (--threads 1, )?--dtype float32"


def changed(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    """Compiles models with other settings."""

    class Core(ov.Core):  # type: ignore[misc]
        def compile_model(self, of: Any, device: str, given: dict[str, Any]) -> Any:
            return super().compile_model(of, device, given | settings)

    monkeypatch.setattr(ov, "Core", Core)


@pytest.mark.parametrize("stored", ["F32", "Q4_1"])
def test_keys_rounded_by_channel_are_found(monkeypatch: pytest.MonkeyPatch, stored: str) -> None:
    changed(monkeypatch, KEY_CACHE_QUANT_MODE="BY_CHANNEL")
    with pytest.raises(UnsupportedModelError, match=DIFFER):
        engines.load(str(gguf_models.made(stored)))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="OpenVINO starts no more threads than there are cores")
def test_a_row_beside_fewer_rows_than_threads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(gguf_models.made("Q4_1"))
    needs_pairs = engines.load(file, num_threads=1).model.least_rows > 1  # a CPU without AVX-512
    monkeypatch.setattr(Rows, "padded", lambda rows, num_rows, spare: rows)
    with pytest.raises(UnsupportedModelError, match=DIFFER) if needs_pairs else nullcontext():
        engines.load(file, num_threads=1)
    with pytest.raises(UnsupportedModelError, match=DIFFER):
        engines.load(file, num_threads=2)


def test_where_a_lone_row_has_other_bits_it_gets_a_spare_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CPUs without AVX-512, whatever this one is; the logits of a lone row are such a row, too."""
    run = Passes._run

    def other_bits(passes: Passes, rows: Rows) -> Any:
        logits, compiled = run(passes, rows), passes._compiled
        is_alone = compiled.least_rows == len(rows.tokens) == 1 or compiled.least_wanted == len(logits) == 1
        return np.nextafter(logits, np.float32(9)) if is_alone else logits

    monkeypatch.setattr(Passes, "_run", other_bits)
    checkpoint = engines.load(str(gguf_models.made("Q8_0")))
    assert (checkpoint.model.least_rows, checkpoint.model.least_wanted) == (2, 2)
    engine, computed = engines.start(checkpoint, num_pages=4), list[torch.Tensor]()
    assert engine.least_rows == 2
    for token in (5, 9, 2):
        computed.append(engine.forward([Chunk("alone", [token], 1)]))
        assert engine.computed in (2, 2 + engine.change_rows)
    assert torch.equal(torch.cat(computed), engine.forward([Chunk("together", [5, 9, 2], 3)]))


def test_a_draft_model_is_as_quick_as_it_can_be_whatever_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_has_bits", lambda *_: False)
    file = str(gguf_models.made("Q8_0"))
    with pytest.raises(UnsupportedModelError, match=DIFFER):
        engines.load(file)
    assert engines.load_draft(file, num_threads=2).model.least_rows == 1


@pytest.mark.parametrize(
    ("patched", "method", "reason"),
    [(Compiled, "__init__", "no such instruction"), (Passes, "run", "a pass returns no logits")],
)
@pytest.mark.parametrize("load", [engines.load, engines.load_draft])
def test_a_cpu_that_cannot_compute_a_model_is_told_with_the_reason(monkeypatch, load, patched, method, reason):
    """OpenVINO's errors begin with places in its sources."""
    error = RuntimeError(f"Exception from src/cpp/core.cpp:117:\n{reason}.\n")
    monkeypatch.setattr(patched, method, Mock(side_effect=error))
    with pytest.raises(UnsupportedModelError, match=rf"cannot compute it on this CPU \({reason}\); use another model"):
        load(str(gguf_models.made("Q8_0")))


def test_a_pass_without_logits_fails() -> None:
    """OpenVINO's passes on a CPU without AVX2 are such."""
    engine: Any = engines.start(engines.load(str(gguf_models.made("Q8_0"))), num_pages=4)
    nothing = SimpleNamespace(data=np.zeros((0, 1, engine.checkpoint.vocab_size), np.float32))
    engine._passes._request = Mock(get_output_tensor=lambda _: nothing)
    with pytest.raises(RuntimeError, match="a pass returns no logits"):
        engine.forward([Chunk("a", [1, 2], 1)])


@pytest.mark.parametrize("in_float32", [False, True])
def test_weights_are_converted_in_parts(monkeypatch: pytest.MonkeyPatch, in_float32: bool) -> None:
    """Else loading would take 12 to 15 bytes a weight of the largest matrix."""
    numbers = np.random.default_rng(0).standard_normal((8192, 256)).astype(np.float16)
    stored, found = StoredTensor("F16", numbers.shape, numbers.view(np.uint8)), list[list[Any]]()

    def keep(_: Constants, *arrays: Any) -> Any:
        found[-1].extend(arrays)
        return ops.constant(0.0)

    monkeypatch.setattr(Constants, "_constant", keep)
    monkeypatch.setattr(Constants, "_scaled", keep)
    monkeypatch.setattr(weights, "Matrix", lambda weight: weight)
    for rows_at_once in (512, 1 << 20):
        monkeypatch.setattr(weights, "ROWS_AT_ONCE", rows_at_once)
        found.append([])
        tracemalloc.start()
        with Constants() as constants:
            constants.matrix(stored, stored, in_float32=in_float32)
        most = tracemalloc.get_traced_memory()[1] / (2 * numbers.size)
        tracemalloc.stop()
        assert in_float32 or (most < 4) == (rows_at_once == 512), most  # float32 needs no other numbers meanwhile
    assert all(np.array_equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("known", "has_int8"),
    [
        ("flags\t: fpu avx2", False),
        ("flags\t: fpu avx2 avx_vnni", True),
        ("flags\t: avx512_vnni fpu", True),
        ("flags\t: amx_int8", True),
        ("Features\t: fp asimd", True),  # not x86: unknown
        (None, True),
    ],
)
def test_a_cpu_tells_whether_it_multiplies_8_bits(monkeypatch, known, has_int8):
    read = Mock(return_value=known, side_effect=None if known else FileNotFoundError)
    monkeypatch.setattr(Path, "read_text", read)
    assert loading.has_int8() is has_int8


def test_a_pass_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engines.start(engines.load(str(gguf_models.made("Q8_0"))), num_pages=4)
    engine.forward([Chunk("kept", [1, 2, 3], 0)])
    with monkeypatch.context() as patch:
        patch.setattr(Passes, "run", Mock(side_effect=RuntimeError))
        with pytest.raises(RuntimeError):
            engine.forward([Chunk("kept", [4] * 40, 1), Chunk("fresh", [1], 1)])
    assert (engine.pool.length("kept"), engine.pool.num_free, "fresh" in engine.pool) == (3, 3, False)


def test_what_does_not_fit_on_the_disk_stays_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where the file's buffer takes it, and closing the file fails again."""

    class Full(io.FileIO):
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", lambda prefix: io.BufferedRandom(Full(tmp_path / prefix, "w+")))
    with Constants() as constants:
        for number in range(2):
            array = np.arange(number, number + 100)
            assert constants._put(array) is array


@pytest.mark.parametrize("num_written", [0, 5])
def test_without_room_for_weights_on_the_disk_they_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch, num_written: int
) -> None:
    text = [Chunk("it", list(range(40)), 40)]
    files = [gguf_models.made(stored) for stored in ("Q4_1", "Q8_0")]
    expected = [engines.start(engines.load(str(file)), num_pages=2).forward(text) for file in files]
    written, whole = list[int](), tempfile.TemporaryFile

    def full(**named: Any) -> Any:
        file = whole(**named)
        write = file.write

        def fail(data: Any) -> int:
            if len(written) == num_written:
                raise OSError("No space left on device")
            written.append(1)
            return int(write(data))

        vars(file)["write"] = fail
        return file

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    for file, logits in zip(files, expected, strict=True):
        written.clear()
        assert torch.equal(engines.start(engines.load(str(file)), num_pages=2).forward(text), logits)
        assert len(written) == num_written


@pytest.mark.skipif(not OWN.exists(), reason="needs /proc")
def test_a_model_takes_few_descriptors_of_the_process() -> None:
    before = len(list(OWN.iterdir()))
    kept = engines.load(str(gguf_models.made("Q4_1")))
    assert kept.num_tokens
    assert len(list(OWN.iterdir())) <= before + 3


def test_a_fingerprint_is_of_weights_and_settings_and_nothing_is_written() -> None:
    one, other = (gguf_models.made(stored) for stored in ("Q8_0", "F16"))
    before = sorted(one.parent.iterdir())
    found = []
    for file, dtype, threads in ((one, "auto", 1), (one, "auto", 2), (one, "float32", 1), (other, "auto", 1)):
        found.append(engines.load(str(file), dtype=dtype, num_threads=threads).model_fingerprint)
    assert found[0] == found[1]
    assert len(set(found)) == 3
    compiled = engines.load(str(one)).model
    assert loading._fingerprint(b"file", compiled, b"bits") != loading._fingerprint(b"file", compiled, b"other bits")
    header = read(one, "it")
    changed = replace(header, fields=header.fields | {"llama.rope.freq_base": 5e5})
    assert loading._sampled(changed) != loading._sampled(header)
    assert sorted(one.parent.iterdir()) == before
