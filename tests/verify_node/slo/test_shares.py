"""A client's share of promises: bounded by its weight while another client asks for some, and else by nothing."""

import pytest

from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Close, Slo
from tests.fakes import Desk, session_id
from tests.verify_node.slo.test_promises import COST

PATIENT = Slo(Objectives(tpot_s=0.1))
"""A round of 100 ms carries 24 tokens, of which 18 are promised."""


@pytest.fixture
def desk() -> Desk:
    return Desk("a", "b", self_draft=False, admission="dp", cost=COST, num_pages=4000, draft_model="")


def ask(desk: Desk, peer: str, numbers: range, slo: Slo = PATIENT, prompt: int = 2) -> None:
    for number in numbers:
        desk.open(peer, number, slo=slo, prompt=(1,) * prompt, max_tokens=100)


def promised(desk: Desk, numbers: range) -> int:
    return sum(bool(desk.session(number).promised) for number in numbers)


def test_alone_a_client_is_promised_all_that_can_be(desk: Desk) -> None:
    ask(desk, "a", range(32))
    assert promised(desk, range(32)) == 18


@pytest.mark.parametrize(("weight", "shares"), [(1.0, (9, 9)), (2.0, (12, 6))])
def test_two_that_ask_at_once_share_by_their_weights(desk: Desk, weight: float, shares: tuple[int, int]) -> None:
    """Both ask during a round, one for 32 and the other for 12."""
    desk.core.peers[b"a"].client.weight = weight
    desk.open("a", 99, slo=None)
    planned = desk.plan()
    ask(desk, "a", range(32))
    ask(desk, "b", range(32, 44))
    desk.finish(planned, COST.round_s(planned.num_tokens, 1, 0))
    assert (promised(desk, range(32)), promised(desk, range(32, 44))) == shares


def test_what_others_do_not_want_goes_to_who_asks(desk: Desk) -> None:
    """The other client asks for what it can never have, so it has no share to wait for."""
    desk.open("a", 99, slo=None)
    planned = desk.plan()
    ask(desk, "a", range(32))
    ask(desk, "b", range(32, 44), Slo(Objectives(tpot_s=0.001)))
    desk.finish(planned, COST.round_s(planned.num_tokens, 1, 0))
    assert (promised(desk, range(32)), promised(desk, range(32, 44))) == (18, 0)


def test_who_came_later_is_promised_first_what_others_leave(desk: Desk) -> None:
    """All is promised to one client. When six of its texts end and it asks for six more, the other is first."""
    ask(desk, "a", range(18))
    ask(desk, "b", range(32, 38), prompt=80)
    assert (promised(desk, range(18)), promised(desk, range(32, 38))) == (18, 0)
    planned = desk.plan()
    for number in range(6):
        desk.up("a", Close(session_id(number), 1))
    ask(desk, "a", range(18, 24))
    desk.finish(planned, COST.round_s(planned.num_tokens, len(planned.entries), 0))
    assert (promised(desk, range(18, 24)), promised(desk, range(32, 38))) == (0, 1)
