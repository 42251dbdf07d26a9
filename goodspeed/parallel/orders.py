"""Orders as bytes: a header of int64 numbers with the order's kind and the length of each of its arrays, then these.

Nothing else is ever sent, so nothing that arrives can become code.
"""

from collections.abc import Sequence
from itertools import chain
from typing import BinaryIO

import numpy as np

from goodspeed.engine.paged.passes import Copy, Memory, Order, Pass
from goodspeed.engine.paged.trees import Ints
from goodspeed.errors import MalformedMessage

END, MEMORY, COPY, PASS = range(4)
NUM_ARRAYS = {END: 0, MEMORY: 1, COPY: 2, PASS: 10}
NUM_LENGTHS = max(NUM_ARRAYS.values())

MAX_NUMBERS = 1 << 26
"""Most numbers of one order: 512 MiB, or the page tables of 8,192 sessions with 131,072 cached tokens each."""

Arrays = Sequence[Ints | Sequence[int]]


def encode(order: Order | None) -> bytes:
    """Returns an order as bytes; None is the last one, after which there are no more."""
    kind, arrays = _taken_apart(order)
    lengths = [len(array) for array in arrays] + [0] * (NUM_LENGTHS - len(arrays))
    if sum(lengths) > MAX_NUMBERS:
        raise MalformedMessage(f"a forward pass of more than {MAX_NUMBERS} numbers cannot be told; use smaller rounds")
    return b"".join(np.asarray(part, np.int64).tobytes() for part in ([kind, *lengths], *arrays))


def read(stream: BinaryIO) -> Order | None:
    """Reads the next order; None for the last one. Raises EOFError at the end, MalformedMessage for what is none."""
    kind, *lengths = _numbers(stream, 1 + NUM_LENGTHS).tolist()
    if kind not in NUM_ARRAYS or min(lengths) < 0 or sum(lengths) > MAX_NUMBERS or any(lengths[NUM_ARRAYS[kind] :]):
        raise MalformedMessage(f"{kind} with arrays of {lengths} numbers is no order")
    arrays = _split(_numbers(stream, sum(lengths)), lengths[: NUM_ARRAYS[kind]])
    match kind:
        case 0:
            return None
        case 1:
            return Memory(*arrays[0].tolist())
        case 2:
            return Copy(*arrays)
    return _pass(*arrays)


def _taken_apart(order: Order | None) -> tuple[int, Arrays]:
    match order:
        case None:
            return END, []
        case Memory():
            return MEMORY, [[order.num_pages, order.page_size]]
        case Copy():
            return COPY, [order.source, order.target]
    tables = [[len(table) for table in order.tables], np.concatenate(order.tables) if order.tables else []]
    nodes = order.parents.values()
    trees = [list(order.parents), [len(parents) for parents in nodes], list(chain.from_iterable(nodes))]
    return PASS, [[order.follows], order.tokens, order.wanted, order.starts, order.counts, *tables, *trees]


def _pass(
    follows: Ints,
    tokens: Ints,
    wanted: Ints,
    starts: Ints,
    counts: Ints,
    table_sizes: Ints,
    tables: Ints,
    tree_chunks: Ints,
    tree_sizes: Ints,
    parents: Ints,
) -> Pass:
    if len(starts) != len(counts) or counts.sum() != len(tokens) or len(tree_chunks) != len(tree_sizes):
        raise MalformedMessage(f"{len(tokens)} tokens are not those of {len(starts)} chunks of {counts.tolist()}")
    trees = [one.tolist() for one in _split(parents, tree_sizes.tolist())]
    return Pass(
        tokens=tokens,
        wanted=wanted.tolist(),
        starts=starts.tolist(),
        counts=counts.tolist(),
        tables=_split(tables, table_sizes.tolist()),
        parents=dict(zip(tree_chunks.tolist(), trees, strict=True)),
        follows=bool(follows.any()),
    )


def _split(numbers: Ints, sizes: Sequence[int]) -> list[Ints]:
    if sum(sizes) != len(numbers) or min(sizes, default=0) < 0:
        raise MalformedMessage(f"{len(numbers)} numbers are not arrays of {list(sizes)}")
    return np.split(numbers, np.cumsum(sizes[:-1])) if sizes else []


def _numbers(stream: BinaryIO, count: int) -> Ints:
    data = stream.read(8 * count)
    if len(data) < 8 * count:
        raise EOFError("rank 0 has ended")
    return np.frombuffer(bytearray(data), np.int64)  # of its own, since torch wants to be able to write
