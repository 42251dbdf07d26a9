"""Forms of open sessions: compiled before their first round, kept until no round can need them, and only for them."""

from collections.abc import Callable
from typing import Any

import pytest

from goodspeed.constraint.compiling import Constraints
from goodspeed.errors import ProtocolError
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import Heartbeat, Leave
from goodspeed.wire.messages import Ack, Close, Refusal, Slo, Verdict
from tests.constraint.babbler import VOCABULARY
from tests.fakes import Desk, session_id
from tests.verify_node.answers import number_of
from verify_node.core.sessions import STUCK_S

ONE, OTHER = Constraint("regex", "[ab]{5,9}"), Constraint("regex", "[cd]{5,9}")


@pytest.fixture
def constraints() -> Constraints:
    return Constraints(VOCABULARY)


@pytest.fixture
def desk(constraints: Constraints) -> Desk:
    return Desk("a", "b", constraints=constraints)


def open_one(desk: Desk, number: int, constraint: Constraint = ONE, *, peer: str = "a", **changes: Any) -> Any:
    """Opens a session; returns the one whose form is compiled next."""
    desk.open(peer, number, constraint=constraint, stop_ids=tuple(VOCABULARY.eos_ids), **changes)
    return desk.core.sessions.next_to_compile()


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


def test_what_opens_again_with_another_form_holds_both_while_a_round_is_in_flight(desk: Desk, constraints) -> None:
    open_one(desk, 1)
    planned = desk.plan()
    open_one(desk, 1, OTHER, epoch=2)
    assert is_held(constraints, 1)
    assert is_held(constraints, 1, OTHER)
    desk.core.rounds.finish(desk.target.run(planned), 0.01, desk.now)
    desk.core.plan(desk.now)
    assert not is_held(constraints, 1)
    assert is_held(constraints, 1, OTHER)


def test_every_session_has_its_form_compiled_for_itself(desk: Desk, constraints: Constraints) -> None:
    for number, peer in enumerate("aab"):
        open_one(desk, number, peer=peer)
    assert len({id(constraints.of(session_id(number), ONE)) for number in range(3)}) == 3
    before = constraints.of(session_id(0), ONE)
    open_one(desk, 0, epoch=2)
    assert constraints.of(session_id(0), ONE) is before


# -- until they are compiled -------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(desk: Desk) -> Desk:
    """Compiles nothing by itself."""
    desk.compiles = False
    return desk


def next_number(desk: Desk) -> int | None:
    session = desk.core.sessions.next_to_compile()
    return None if session is None else number_of(session.session_id)


def take_turn(desk: Desk) -> int | None:
    """Compiles the next; returns whose it was."""
    number, asked = next_number(desk), desk.core.sessions.next_to_compile()
    if asked is not None:
        constraints: Any = desk.core.sessions.constraints
        desk.now += 1.0
        desk.core.compiled(asked, constraints.compiled(asked.opened.constraint), desk.now)
    return number


def test_a_session_is_open_while_its_form_waits_and_rounds_go_on_without_it(waiting: Desk) -> None:
    """Its draft node may repeat messages meanwhile: the session is known, and gets no verdict yet."""
    open_one(waiting, 1)
    waiting.open("b", 2)
    [verdict] = waiting.round()
    assert verdict.session_id == session_id(2)
    for message in (Ack(session_id(1), 1, 3), waiting.session().opened):
        assert waiting.up("a", message) == []
    assert waiting.core.replies.refusals.total() == 0
    assert take_turn(waiting) == 1
    waiting.acknowledge()
    assert {message.session_id for message in waiting.round()} == {session_id(1), session_id(2)}
    assert next_number(waiting) is None


def test_a_session_whose_form_waits_long_is_not_at_fault(waiting: Desk) -> None:
    open_one(waiting, 1)
    for _ in range(int(STUCK_S) + 20):
        waiting.now += 1.0
        waiting.up("a", Heartbeat(b"bootboot"))
        waiting.up("a", waiting.session().opened)
        waiting.core.tick(waiting.now)
    assert next_number(waiting) == 1


def test_only_what_opens_again_need_not_wait(waiting: Desk) -> None:
    """The time to a first token must not tell whether another session has the same constraint."""
    open_one(waiting, 1)
    take_turn(waiting)
    open_one(waiting, 1, epoch=2)
    assert next_number(waiting) is None
    open_one(waiting, 1, OTHER, epoch=3)
    assert next_number(waiting) == 1
    open_one(waiting, 2)
    waiting.up("a", Close(session_id(1), 3))
    assert next_number(waiting) == 2


def test_clients_take_turns_with_their_oldest_sessions(waiting: Desk) -> None:
    for number in (1, 2, 3):
        open_one(waiting, number)
    open_one(waiting, 9, peer="b")
    assert [take_turn(waiting) for _ in range(5)] == [1, 9, 2, 3, None]


def test_a_client_that_is_new_each_time_comes_after_those_that_waited(waiting: Desk) -> None:
    """A sender without a key may choose another name each time."""
    for number in (1, 2):
        open_one(waiting, number)
    turns = []
    for number in range(10, 14):
        waiting.now += 0.25
        waiting.hello(f"new-{number}", boot_id=b"new-%d--" % number)
        open_one(waiting, number, peer=f"new-{number}")
        turns.append(take_turn(waiting))
    assert turns == [1, 10, 2, 11]


def test_what_opens_again_while_its_form_is_compiled_has_the_result(waiting: Desk, constraints: Constraints) -> None:
    """Each line that fails for a moment would else cost a turn."""
    asked = open_one(waiting, 1)
    open_one(waiting, 1, epoch=2)
    assert waiting.core.compiled(asked, constraints.get(ONE), waiting.now) == []
    assert [message.epoch for message in waiting.round() if isinstance(message, Verdict)] == [2]


def test_the_result_for_another_form_is_dropped(waiting: Desk, constraints: Constraints) -> None:
    asked = open_one(waiting, 1)
    open_one(waiting, 1, OTHER, epoch=2)
    assert waiting.core.compiled(asked, constraints.get(ONE), waiting.now) == []
    assert next_number(waiting) == 1
    assert constraints.holders == []


def test_a_form_that_does_not_compile_is_refused_in_the_newest_epoch(waiting: Desk) -> None:
    wrong = Constraint("regex", "a(")
    open_one(waiting, 1, wrong)
    open_one(waiting, 1, wrong, epoch=2)
    [send] = waiting.compile()
    assert (send.message.code, send.message.epoch) == ("constraint", 2)
    assert waiting.core.sessions == {}


ENDS: dict[str, Callable[[Desk], object]] = {
    "a close": lambda desk: desk.up("a", Close(session_id(1), 1)),
    "a leave": lambda desk: desk.up("a", Leave()),
    "a lost lease": lambda desk: desk.core.tick(desk.now + 1e6),
    "a bar": lambda desk: [desk.core.reject(b"a", ProtocolError("malformed"), desk.now) for _ in range(200)],
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_nothing_waits_for_a_sender_that_is_gone(waiting: Desk, constraints, end: Callable[[Desk], object]) -> None:
    asked = open_one(waiting, 1)
    end(waiting)
    assert next_number(waiting) is None
    assert waiting.core.compiled(asked, constraints.get(ONE), waiting.now) == []
    assert (dict(waiting.core.sessions), constraints.holders) == ({}, [])


def test_what_waits_is_checked_counted_and_limited_like_every_session(constraints: Constraints) -> None:
    desk = Desk("a", constraints=constraints, max_client_sessions=2)
    desk.compiles = False
    codes = []
    for number, prompt in ((1, (1,) * 1000), (2, (1, 2)), (3, (1, 2)), (4, (1, 2))):
        answers = desk.open("a", number, prompt=prompt, constraint=ONE, stop_ids=tuple(VOCABULARY.eos_ids))
        codes.append(answers[0].code if answers and isinstance(answers[0], Refusal) else None)
    assert codes == ["prompt", None, None, "too_many_sessions"]
    assert desk.core.rate_limiter._senders[b"a"].messages > 5.0  # the Hello, four openings, and their tokens


def test_a_promise_is_decided_when_the_form_is_compiled(constraints: Constraints) -> None:
    """Its time runs from the opening; a promise before would not know of the wait."""
    desk = Desk("a", constraints=constraints, admission="dp", cost=Linear(0.01, 0.0))
    desk.compiles = False
    slo = Slo(Objectives(ttft_s=5.0))
    open_one(desk, 1, slo=slo)
    assert not desk.core.promises.has_undecided
    desk.core.tick(desk.now)
    desk.core.plan(desk.now)
    assert desk.core.wake_at > desk.now
    assert take_turn(desk) == 1
    assert desk.core.promises.has_undecided
    desk.core.admit(desk.now)
    assert desk.session().promised
    assert desk.session().deadline.due == 5.0


def test_time_without_a_compiled_form_is_no_time_without_goodput(waiting: Desk) -> None:
    waiting.open("b", 2)
    open_one(waiting, 1)
    for _ in range(3):
        waiting.round()
        waiting.acknowledge(2)
    take_turn(waiting)
    assert waiting.session(1).client.observed_round == waiting.core.rounds.num_rounds == 3
