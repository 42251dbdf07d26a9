"""Passes keep the size of the one before, with spare rows that change nothing."""

import pytest
import torch

from goodspeed.engine import engines
from goodspeed.engine.openvino.sizes import Size
from goodspeed.engine.paged.chunks import Chunk
from tests.engine import gguf_models


def test_a_size_stays_until_spare_rows_have_taken_as_long_as_a_change():
    size = Size(5.0)
    assert [size.of(rows) for rows in (3, 2, 1, 1, 3)] == [3, 3, 3, 3, 3]  # 5 spare rows, then all are needed
    assert [size.of(rows) for rows in (1, 1, 1, 1)] == [3, 3, 1, 1]  # the sixth is too many
    assert [size.of(rows) for rows in (4, 60, 1)] == [4, 60, 1]
    assert [Size(0.0).of(rows) for rows in (3, 2, 3)] == [3, 2, 3]


@pytest.mark.parametrize("threads", [1, 2])
def test_spare_rows_change_no_bits(threads: int):
    checkpoint = engines.load(str(gguf_models.made("Q4_1")), num_threads=threads)
    tokens, found = [5, 9, 2, 7, 7, 1, 3, 8, 4, 6, 11, 2], dict[float, torch.Tensor]()
    for change_rows in (0.0, 1000.0):
        checkpoint.model.change_rows = change_rows
        engine = engines.start(checkpoint, num_pages=8)
        parts, first = list[torch.Tensor](), 0
        for number in (7, 1, 2, 1, 1):
            parts.append(engine.forward([Chunk("a", tokens[first : first + number], number)]))
            first += number
            least = max(number, engine.least_rows)
            assert engine.computed == (7 + change_rows * (number == 7) if change_rows else least)
        found[change_rows] = torch.cat(parts)
    assert torch.equal(*found.values())


def test_the_rows_that_a_change_takes_are_measured():
    assert 0.0 <= engines.load(str(gguf_models.made("Q8_0"))).model.change_rows <= 64.0
