"""A file that keeps some tokens computes their logits as a whole one does whose other inputs are those of kept ones."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from goodspeed.engine import engines
from goodspeed.engine.gguf.file import KEPT, MASK, NEAREST, PARALLEL, read
from goodspeed.engine.gguf.pruned_vocabulary import KeptTokens
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.errors import CheckpointError
from tests.engine import gguf_models

TOKENS = [(7 * i * i + i) % 250 for i in range(40)]
ROWS = np.array([*range(0, 250, 2), 256])  # kept tokens of the tests: the even ones, and the end of a text
BEYOND = np.array([*ROWS[:-1].tolist(), 1 << 63], object)
ALIKE = np.array([min(i // 2, len(ROWS) - 1) for i in range(258)])
"""The row that stands for each token: an odd one's is that of the token before it."""


def test_logits(tmp_path: Path) -> None:
    files = [gguf_models.keeping(tmp_path / f"{each}.gguf", ROWS, ALIKE, is_whole=each) for each in (False, True)]
    kept, whole = (engines.start(engines.load(str(file)), num_pages=2) for file in files)
    found, wanted = (engine.forward([Chunk("a", TOKENS, len(TOKENS))]) for engine in (kept, whole))
    assert found.shape == wanted.shape == (len(TOKENS), 258)
    assert torch.equal(found[:, ROWS], wanted[:, ROWS])
    others = np.setdiff1d(np.arange(258), ROWS)
    assert (found[:, others] == -torch.inf).all()


def test_a_fingerprint_is_of_the_kept_tokens_too(tmp_path: Path) -> None:
    other = ALIKE.copy()
    other[1] = 5
    files = [gguf_models.keeping(tmp_path / f"{number}.gguf", ROWS, to) for number, to in enumerate((ALIKE, other))]
    assert len({engines.load(str(file), dtype="float32").model_fingerprint for file in files}) == 2


def test_logits_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file = gguf_models.keeping(tmp_path / "kept.gguf", ROWS, ALIKE, is_spoilt=True)
    with pytest.raises(CheckpointError, match="its logits are no numbers"):
        engines.load(str(file))


def changed(tmp_path: Path, **fields: Any) -> KeptTokens | None:
    file = read(gguf_models.keeping(tmp_path / "kept.gguf", ROWS, ALIKE), "it")
    return KeptTokens.of(replace(file, fields=file.fields | fields))


@pytest.mark.parametrize(
    ("kept", "nearest", "told"),
    [
        ([], ALIKE, f"{KEPT} is no ascending list of ids below 258"),
        (ROWS[::-1], ALIKE, f"{KEPT} is no ascending list"),
        ([*ROWS[:-1], 258], ALIKE, f"{KEPT} is no ascending list"),
        ([-1, *ROWS[1:]], ALIKE, f"{KEPT} is no ascending list"),
        (ROWS, [], f"{KEPT} is no ascending list of ids below 0"),
        (ROWS[:-1], ALIKE, f"{KEPT} has 125 tokens, but the model 126 rows"),
        ([*ROWS, 257], ALIKE, f"{KEPT} has 127 tokens, but the model 126 rows"),
        (ROWS, ALIKE + 1, f"{NEAREST} does not name rows"),
        (ROWS, ALIKE - 1, f"{NEAREST} does not name rows"),
        (ROWS, np.zeros_like(ALIKE), f"{NEAREST} does not name rows .* or a kept token not its own"),
        (ROWS, [0.5] * 258, f"its field {NEAREST} is no list of int"),
        (BEYOND, ALIKE, f"{KEPT} or {NEAREST} has a number beyond 9223372036854775807"),
        (ROWS, "none", f"its field {NEAREST} is 'none'"),
    ],
)
def test_arrays_that_contradict_each_other(tmp_path: Path, kept: Any, nearest: Any, told: str) -> None:
    fields = {KEPT: np.asarray(kept).tolist(), NEAREST: np.asarray(nearest).tolist()}
    with pytest.raises(CheckpointError, match=rf"^it: the GGUF file is damaged: {told}"):
        changed(tmp_path, **fields)


def test_a_mask_that_is_not_kept(tmp_path: Path) -> None:
    changed(tmp_path, **{MASK: int(ROWS[0]), PARALLEL: 4})
    with pytest.raises(CheckpointError, match=f"{KEPT} lacks the mask"):
        changed(tmp_path, **{MASK: 1, PARALLEL: 4})


def test_one_array_without_the_other(tmp_path: Path) -> None:
    file = read(gguf_models.keeping(tmp_path / "kept.gguf", ROWS, ALIKE), "it")
    for key in (KEPT, NEAREST):
        with pytest.raises(CheckpointError, match=f"its field {key} is missing"):
            KeptTokens.of(replace(file, fields={k: v for k, v in file.fields.items() if k != key}))
