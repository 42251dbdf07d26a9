"""What `multipleOf` costs: a number is read digit by digit, with a state for each remainder that it may leave.

llguidance does not count these states as fuel. Numbers that may stand at one place are read together, and their
remainders are those by the least common multiple. Knows nothing about schemas or llguidance.
"""

from collections.abc import Collection, Iterable
from decimal import Decimal
from math import lcm

from goodspeed.errors import GrammarError

MAX_MULTIPLE = 1_000
"""Remainders at one place, of a number's digits without its decimal point: about 3 ms. Powers of ten cost nothing."""

MAX_MULTIPLES = 4_000
"""Remainders of all places of a grammar together: about 12 ms."""


def remainders(multiple: object) -> int:
    """Returns how many remainders a `multipleOf` has; 1 for what is no number, which the compiler refuses."""
    if isinstance(multiple, bool) or not isinstance(multiple, int | float):
        return 1
    whole, _, fraction = f"{abs(Decimal(repr(multiple))):f}".partition(".")
    return int(whole + fraction.rstrip("0")) or 1


def is_costly(num_remainders: int) -> bool:
    """Whether they count: digits alone decide about powers of ten."""
    return str(num_remainders).rstrip("0") != "1"


def together(parts: Iterable[Collection[int]]) -> frozenset[int]:
    """Returns the remainders of parts that may stand at one place; GrammarError where they are too many."""
    there = [part for part in parts if part]
    found = frozenset[int]().union(*there)
    if len(there) > 1 and any(map(is_costly, found)):
        check_multiple(lcm(*found))
    return found


def check_multiple(num_remainders: int) -> None:
    """Raises GrammarError for too many at one place."""
    if num_remainders > MAX_MULTIPLE and is_costly(num_remainders):
        what = f"multipleOf leads to {num_remainders} remainders at one place of the schema"
        raise GrammarError(f"{what}; {MAX_MULTIPLE} are the most, take a smaller one or a power of ten")


def check_multiples(num_remainders: int) -> None:
    """Raises GrammarError for too many in one grammar."""
    if num_remainders > MAX_MULTIPLES:
        what = f"the numbers of all multipleOf together are {num_remainders}"
        raise GrammarError(f"{what}; {MAX_MULTIPLES} are the most, leave some out")
