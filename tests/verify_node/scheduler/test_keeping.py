"""A choice serves sessions with objectives before it chooses tokens by their value."""

from goodspeed.fair.round_time import Linear
from goodspeed.wire import probabilities
from tests.verify_node.scheduler.drafting import (
    DEAR,
    NOW,
    drafting,
    lengths,
    make_choice,
    make_client,
    make_session,
    owe,
)
from verify_node.session.client import Client

EVEN = (0.9, 0.9, 0.9, 0.9)
POOR = (0.3, 0.3, 0.3, 0.3)


def test_who_is_owed_more_than_a_token_has_drafts_verified_that_would_not_pay():
    session = drafting(1, POOR)
    assert lengths(make_choice(cost=DEAR), session) == [0]
    assert lengths(make_choice(cost=DEAR), owe(session, 1.1)) == [3], "they bring 0.42, the first two 0.39"
    assert lengths(make_choice(cost=DEAR), owe(session, 1.5)) == [0], "all of them bring too little"
    assert lengths(make_choice(cost=DEAR), owe(drafting(1, POOR), 1.0)) == [1]


def test_who_is_on_time_gets_what_it_would_get_without_objectives():
    for owed in (0.0, 0.8):
        with_slo = lengths(make_choice(budget=4), owe(drafting(1, POOR), owed), drafting(2, EVEN))
        assert with_slo == lengths(make_choice(budget=4), drafting(1, POOR), drafting(2, EVEN))


def test_a_round_stays_short_for_whom_one_token_keeps_on_time():
    """One token is due 50 ms after the first one; a round takes 10 ms, and 10 ms for every token."""
    plain, on_time = (make_session(1, make_client("tight", weight=9.0)) for _ in range(2))
    owe(on_time, 0.5)
    eager = drafting(2, (0.99,) * 8, client=make_client("eager", weight=1.0))
    cost = Linear(fixed_s=0.01, token_s=0.001)

    def worth(client: Client) -> float:
        return 1.0

    assert lengths(make_choice(cost=cost, worth=worth, budget=64), on_time, eager)[1] == 8
    tight = Linear(fixed_s=0.041, token_s=0.002)
    assert lengths(make_choice(cost=tight, worth=worth), plain, eager)[1] > 2
    assert lengths(make_choice(cost=tight, worth=worth), on_time, eager)[1] == 2, "41 + 2 x 2 + 2 x 2 ms"


def test_who_is_behind_is_asked_to_draft_on_whatever_it_costs():
    choice = make_choice(cost=DEAR)
    behind, other = owe(drafting(1, EVEN), 3.0), drafting(2, EVEN)
    lengths(choice, behind, other)
    assert choice.owes_more(behind)
    assert not choice.owes_more(other)
    assert probabilities.bound(choice.least_probability(behind)) < probabilities.bound(choice.least_probability(other))


def test_now_is_the_time_of_the_round():
    session = owe(drafting(1, POOR), 1.1)
    choice = make_choice(cost=DEAR)
    assert not choice.choose([session], 1, NOW - 1.0)[session.session_id].tokens
    assert choice.choose([session], 1, NOW)[session.session_id].tokens
