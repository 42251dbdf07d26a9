"""Orders on a pipe: what is read is what was told, and anything else is refused."""

import io

import numpy as np
import pytest

from goodspeed.engine.paged.passes import Copy, Memory, Order, Pass
from goodspeed.errors import MalformedMessage
from goodspeed.parallel import orders
from goodspeed.parallel.orders import encode, read


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


ORDERS: list[Order] = [
    Memory(24, 4),
    Copy(ints(1, 2, 3), ints(4, 5, 6)),
    Pass(ints(7, 8, 9), [1, 2], [0, 5], [2, 1], [ints(3), ints(0, 1)], {0: [-1]}),
    Pass(ints(7, 8), [0, 1], [4, 6], [1, 1], [], {}, follows=True),
    Pass(ints(*range(5)), [], [0], [5], [ints(2, 9)], {0: [-1, 0, 0, 2]}),
]


def told(order: Order | None) -> str:
    """All of an order; arrays and lists of the same numbers are the same."""
    return repr(order).replace("array(", "").replace("), dtype=int64)", "]").replace(")", "")


def test_orders_come_as_they_were_told_one_after_the_other() -> None:
    stream = io.BytesIO(b"".join(map(encode, [*ORDERS, None])))
    assert [told(read(stream)) for _ in ORDERS] == [told(order) for order in ORDERS]
    assert read(stream) is None
    with pytest.raises(EOFError):
        read(stream)


@pytest.mark.parametrize("end", [0, 1, 8, 87, 88, 95])
def test_a_stream_that_ends_too_early_is_no_order(end: int) -> None:
    with pytest.raises(EOFError):
        read(io.BytesIO(encode(ORDERS[0])[:end]))


@pytest.mark.parametrize(
    "header",
    [
        [4, *[0] * 10],  # no such kind
        [-1, *[0] * 10],
        [0, 1, *[0] * 9],  # the last order has no arrays
        [1, 2, 2, *[0] * 8],
        [2, -1, 1, *[0] * 8],
        [2, orders.MAX_NUMBERS, 1, *[0] * 8],
    ],
)
def test_a_header_out_of_bounds_is_refused_before_anything_is_read(header: list[int]) -> None:
    with pytest.raises(MalformedMessage):
        read(io.BytesIO(ints(*header).tobytes()))


@pytest.mark.parametrize("wrong", [{"counts": [2, 2]}, {"starts": [0]}])
def test_a_pass_whose_parts_do_not_fit_together_is_refused(wrong: dict[str, list[int]]) -> None:
    with pytest.raises(MalformedMessage):
        read(io.BytesIO(encode(Pass(**vars(ORDERS[2]) | wrong))))


def test_what_is_too_long_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "MAX_NUMBERS", 4)
    with pytest.raises(MalformedMessage, match="smaller rounds"):
        encode(ORDERS[2])
