"""No bytes get anything out of a decoder but a result or an error with a name, and what they cost is bounded."""

import time
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.decoders import DECODERS, NOT_FUZZED, check

BASE_BYTES = 4 << 20
"""A decoder may take so much whatever it is given: a proposal of 4 positions has 70,000 probabilities at each."""

BYTES_PER_BYTE = 100
"""A decoder may take so much more for each byte: an empty list in JSON is 3 bytes, and 64 as a list of Python's."""

CPU_S = 2.0  # nothing here takes a hundredth of that; what is quadratic in a few 10,000 bytes would take longer
randoms = st.integers(0, (1 << 32) - 1).map(Random)


@pytest.fixture(autouse=True, scope="module")
def warm() -> None:
    """torch imports a part of itself, of 40 MB, at the first proposal."""
    check(DECODERS["proposal"], DECODERS["proposal"].right(Random(0)))


def is_taken(name: str, data: bytes) -> bool:
    started = time.process_time()
    tracemalloc.start()
    try:
        taken = check(DECODERS[name], data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < BASE_BYTES + BYTES_PER_BYTE * len(data), f"{peak} bytes for {len(data)}"
    assert time.process_time() - started < CPU_S
    return taken


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_right_is_taken(name: str) -> None:
    """Else what is spoilt would be refused for the wrong reason."""
    assert all(is_taken(name, DECODERS[name].right(Random(seed))) for seed in range(20))


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=50, deadline=None)
@given(randoms)
def test_what_is_nearly_right_is_taken_or_refused_by_name(name: str, random: Random) -> None:
    is_taken(name, DECODERS[name].wrong(random))


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=10, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_taken_or_refused_by_name(name: str, data: bytes) -> None:
    is_taken(name, data)


def test_every_message_has_an_example() -> None:
    assert not NOT_FUZZED


LARGE = {  # what is long on purpose, for whoever takes it
    "nested lists": b"[" * 60_000,
    "nested objects": b'{"a":' * 20_000,
    "nested tables": b"a." * 8_000 + b"a = 1",
    "nested in MessagePack": b"\x91" * 60_000,
    "digits": b"9" * 60_000,
    "a number": b"x = " + b"1" * 5_000,
    "a name": b'{"' + b"a" * 60_000 + b'": 1}',
    "a name of a prompt": b'{"prompt": "x", "' + b"a" * 60_000 + b'": 1}',
    "names": b'{"prompt": "x"' + b"".join(b', "%d": 1' % n for n in range(5_000)) + b"}",
    "empty lists": b"[" + b"[]," * 20_000 + b"[]]",
    "quotes": b'"' * 60_000,
    "backslashes": b"\\" * 60_000,
    "line ends": b"\n" * 60_000,
    "an exponent": b'{"prompt": "x", "seed": 1e' + b"9" * 4_000 + b"}",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("what", LARGE)
def test_what_is_long_costs_no_more_than_its_length(name: str, what: str) -> None:
    prefix = b"\0content-type: application/json\n\n" if name == "HTTP body" else b""
    is_taken(name, prefix + LARGE[what])
