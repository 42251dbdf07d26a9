"""Orders on a pipe: what is read is what was told."""

import io

import numpy as np
import pytest

from goodspeed.engine.torch.passes import Copy, Memory, Order, Pass
from goodspeed.engine.torch.tensor_parallel.orders import encode, read


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


ORDERS: list[Order] = [
    Memory(24, 4),
    Copy(ints(1, 2, 3), ints(4, 5, 6)),
    Pass(ints(7, 8, 9), [1, 2], [0, 5], [2, 1], [ints(3), ints(0, 1)], {0: [-1]}),
    Pass(ints(*range(5)), [], [0], [5], [ints(2, 9)], {0: [-1, 0, 0, 2]}),
]


def test_orders_come_as_they_were_told_one_after_the_other() -> None:
    stream = io.BytesIO(b"".join(map(encode, [*ORDERS, None])))
    assert [repr(read(stream)) for _ in ORDERS] == [repr(order) for order in ORDERS]
    assert read(stream) is None
    with pytest.raises(EOFError):
        read(stream)


@pytest.mark.parametrize("end", [0, 1, 7, 8, -1])
def test_a_stream_that_ends_too_early_is_no_order(end: int) -> None:
    with pytest.raises(EOFError):
        read(io.BytesIO(encode(ORDERS[0])[:end]))


def test_what_is_read_can_be_written_to() -> None:
    copy = read(io.BytesIO(encode(ORDERS[1])))
    assert isinstance(copy, Copy)
    copy.source[0] = 5
