"""Forms of open sessions: compiled when they open, kept until no round can need them, and for nobody else to notice."""

from collections.abc import Callable
from typing import Any

import pytest

from goodspeed.constraint.compiling import Constraints
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Close
from tests.constraint.babbler import VOCABULARY
from tests.fakes import Desk, session_id
from verify_node.core.invariants import CheckedCore, validate
from verify_node.core.settings import CoreSettings
from verify_node.session.phase import BrokenInvariant

ONE, OTHER = Constraint("regex", "[ab]{5,9}"), Constraint("regex", "[cd]{5,9}")


@pytest.fixture
def constraints() -> Constraints:
    return Constraints(VOCABULARY)


@pytest.fixture
def desk(constraints: Constraints) -> Desk:
    plain = Desk()
    welcome, pool = plain.core.welcome, plain.core.pool
    core = CheckedCore(CoreSettings(budget=8), welcome, pool, constraints=constraints)
    desk = Desk(core)
    desk.hello("a")
    desk.hello("b")
    return desk


def open_one(desk: Desk, number: int, constraint: Constraint = ONE, *, peer: str = "a", **changes: Any) -> None:
    desk.open(peer, number, constraint=constraint, stop_ids=tuple(VOCABULARY.eos_ids), **changes)


def is_held(constraints: Constraints, number: int, constraint: Constraint = ONE) -> bool:
    """True if the target need not compile it."""
    return constraints.holds(session_id(number), constraint)


def test_an_open_session_holds_its_form_until_it_is_closed(desk: Desk, constraints: Constraints) -> None:
    open_one(desk, 1)
    assert is_held(constraints, 1)
    desk.round()
    desk.up("a", Close(session_id(1), 1))
    assert is_held(constraints, 1)  # a round might be in flight
    desk.round()
    assert not is_held(constraints, 1)


def test_a_session_that_is_refused_holds_nothing(desk: Desk, constraints: Constraints) -> None:
    desk.open("a", 1, constraint=ONE, stop_ids=())
    assert not is_held(constraints, 1)


def test_what_opens_again_with_another_form_holds_both_while_a_round_is_in_flight(
    desk: Desk, constraints: Constraints
) -> None:
    open_one(desk, 1)
    planned = desk.plan()
    open_one(desk, 1, OTHER, epoch=2)
    assert is_held(constraints, 1)
    assert is_held(constraints, 1, OTHER)
    desk.core.finish(desk.target.run(planned), 0.01, desk.now)
    desk.core.plan(desk.now)
    assert not is_held(constraints, 1)
    assert is_held(constraints, 1, OTHER)


def test_what_opens_again_between_rounds_holds_the_newest(desk: Desk, constraints: Constraints) -> None:
    open_one(desk, 1)
    open_one(desk, 1, OTHER, epoch=2)
    assert not is_held(constraints, 1)
    assert is_held(constraints, 1, OTHER)
    desk.open("a", 1, epoch=3)
    assert not is_held(constraints, 1, OTHER)


def test_every_session_has_its_form_compiled_for_itself(desk: Desk, constraints: Constraints) -> None:
    for number, peer in enumerate("aab"):
        open_one(desk, number, peer=peer)
    assert len({id(constraints.of(session_id(number), ONE)) for number in range(3)}) == 3
    before = constraints.of(session_id(0), ONE)
    open_one(desk, 0, epoch=2)
    assert constraints.of(session_id(0), ONE) is before


def test_nothing_is_held_for_nobody(desk: Desk, constraints: Constraints) -> None:
    for number in range(4):
        open_one(desk, number, OTHER if number % 2 else ONE)
    desk.round()
    for number in range(4):
        desk.up("a", Close(session_id(number), 1))
    desk.round()
    assert constraints.holders == []


def _exchange(constraints: Constraints) -> None:
    constraints.release(session_id(1))
    constraints.hold(session_id(1), OTHER)


BREAKS: dict[str, tuple[Callable[[Constraints], None], str]] = {
    "a constraint of nobody": (lambda held: held.hold(session_id(7), ONE), "that nothing will release"),
    "a constraint of a session that has none": (
        lambda constraints: constraints.hold(session_id(2), ONE),
        "nothing will release",
    ),
    "a session without its constraint": (lambda held: held.release(session_id(1)), "does not hold its constraint"),
    "a session with another constraint": (_exchange, "does not hold its constraint"),
}


@pytest.mark.parametrize(("breaks", "what"), BREAKS.values(), ids=BREAKS)
def test_whose_forms_are_held_is_looked_at(
    desk: Desk, constraints: Constraints, breaks: Callable[[Constraints], None], what: str
) -> None:
    open_one(desk, 1)
    desk.open("a", 2)
    validate(desk.core)
    breaks(constraints)
    with pytest.raises(BrokenInvariant, match=what):
        validate(desk.core)
