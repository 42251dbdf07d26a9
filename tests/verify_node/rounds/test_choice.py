"""Which drafted tokens a round verifies: small rounds by hand, then that no rule is ever broken."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.engine.paged.pages import PagePool
from goodspeed.exact.positions import certain
from goodspeed.fair.latency import Linear
from goodspeed.wire import odds
from goodspeed.wire.messages import Offer
from tests.verify_node.rounds.offering import (
    DEAR,
    NOW,
    drafting,
    grow,
    lengths,
    make_choice,
    make_client,
    make_session,
    offering,
)
from verify_node.packing.packing import plan
from verify_node.packing.round import RoundLimits
from verify_node.rounds.choice import ALL, Whole

EVEN = (0.9, 0.9, 0.9, 0.9)


# -- colliding drafts --------------------------------------------------------------------------------------------------


def test_colliding_drafts_fill_the_budget_and_nobody_is_deferred():
    sessions = [drafting(number, EVEN) for number in range(1, 5)]
    pool = PagePool(64, 4)
    for session in sessions:
        pool.extend(session.session_id, len(session.tokens) - 1)
    planned = plan(1, sessions, sessions, RoundLimits(10, 64), pool, make_choice(budget=10).choose(sessions, NOW))
    assert planned.num_drafted == 10
    assert (planned.deferred, len(planned.verified)) == ((), 4)
    whole = plan(1, sessions, sessions, RoundLimits(10, 64), pool, Whole().choose(sessions, NOW))
    assert (whole.num_drafted, len(whole.deferred)) == (8, 2)


def test_a_cut_draft_answers_its_round_and_keeps_what_belongs_to_its_tokens():
    sessions = [drafting(1, EVEN, num_ngram=3), drafting(2, EVEN)]
    planned = plan(
        1, sessions, sessions, RoundLimits(4, 64), PagePool(64, 4), make_choice(budget=4).choose(sessions, NOW)
    )
    for entry, session in zip(planned.entries, sessions, strict=True):
        assert entry.draft_round == session.draft.round
        assert entry.num_drafted == len(entry.odds) == 2
        assert entry.tokens[-2:] == session.draft.tokens[:2]
    assert [entry.num_ngram for entry in planned.entries] == [2, 0]


def test_the_likelier_tokens_are_taken():
    assert lengths(make_choice(budget=4), drafting(1, (0.9, 0.9, 0.9)), drafting(2, (0.5, 0.9, 0.9))) == [3, 1]


def test_a_draft_without_odds_counts_by_the_acceptance_rate():
    """0.7, 0.49 and 0.34 against 0.6, 0.54 and 0.49."""
    assert lengths(make_choice(budget=3), drafting(1, None), drafting(2, (0.6, 0.9, 0.9))) == [1, 2]


def test_worth_decides_who_gets_more():
    heavy, light = (drafting(n, EVEN, client=make_client(f"{n}", weight=w)) for n, w in ((1, 3.0), (2, 1.0)))
    assert lengths(make_choice(budget=4), heavy, light) == [4, 0]
    assert lengths(make_choice(budget=5), heavy, light) == [4, 1]


def test_more_sessions_than_a_round_has_tokens_leave_no_room_for_drafts():
    sessions = [drafting(number, EVEN) for number in range(1, 7)]
    assert sum(lengths(make_choice(budget=8, max_round_tokens=9), *sessions)) == 3
    assert sum(lengths(make_choice(budget=8, max_round_tokens=5), *sessions)) == 0


# -- the price of time -------------------------------------------------------------------------------------------------


def test_a_token_that_costs_more_time_than_it_brings_is_not_verified():
    assert lengths(make_choice(cost=DEAR), drafting(1, (0.9, 0.2))) == [1]  # 1.9 / 30 ms > 2.1 / 40 ms, 1 / 20 ms
    assert lengths(make_choice(cost=Linear(fixed_s=0.0001, token_s=0.01)), drafting(1, EVEN)) == [0]


def test_who_has_drafted_nothing_waits_for_a_longer_round_too():
    """Alone, 0.6 more tokens for 3/4 of the time more would not pay with 9 others who get their one token later."""
    alone = drafting(1, (0.6,))
    others = [make_session(number) for number in range(2, 11)]
    cost = Linear(fixed_s=0.01, token_s=0.0015)
    assert lengths(make_choice(cost=cost), alone) == [1]  # 1.6 / 13 ms > 1 / 11.5 ms
    assert lengths(make_choice(cost=cost), alone, *others)[0] == 0  # 10.6 / 26.5 ms < 10 / 25 ms


def test_least_odds_follow_from_the_price_of_the_last_round():
    choice, session = make_choice(cost=DEAR, budget=4), drafting(1, EVEN)
    assert choice.least_odds(session) == ALL
    lengths(choice, session)
    assert choice.least_odds(session) < ALL
    dearer = choice.least_odds(make_session(2, make_client("b", weight=0.5)))
    assert dearer < choice.least_odds(session)  # a code: lower is likelier
    lengths(choice, make_session(2), make_session(3))
    assert choice.least_odds(session) < ALL


def test_the_price_falls_again_in_rounds_without_drafts():
    """Else own drafts would stop for good: they end where the last price ends them."""
    cost = Linear(fixed_s=0.05, token_s=0.01)
    choice = make_choice(cost=cost)
    lengths(choice, *(drafting(number, EVEN) for number in range(1, 3)))
    after_many = choice.least_odds(make_session())
    lengths(choice, make_session(3))
    assert choice.least_odds(make_session()) > after_many


# -- hostile odds ------------------------------------------------------------------------------------------------------


def test_claims_that_proved_wrong_do_not_push_others_out():
    liar, honest = drafting(1, (1.0,) * 4), drafting(2, (0.8,) * 4)
    assert lengths(make_choice(budget=4), liar, honest) == [4, 0]
    for _ in range(40):
        liar.client.calibration("model").observe(liar.draft.odds, 0)
    assert lengths(make_choice(budget=4), liar, honest) == [0, 4]


def test_each_source_is_calibrated_by_itself():
    """Wrong words of the index do not count for what the model says after it, nor for the verify node's own."""
    session = drafting(1, (0.9, 0.9), num_ngram=2)
    for _ in range(50):
        session.client.calibration("ngram").observe(session.draft.odds, 0)
    other = drafting(2, (0.5, 0.5), num_ngram=0)
    assert lengths(make_choice(budget=1), session, other) == [0, 1]
    by_model = drafting(3, (0.9, 0.9), client=session.client)
    assert lengths(make_choice(budget=1), by_model, other) == [1, 0]


@given(st.lists(st.lists(st.floats(0.0, 1.0), max_size=6), min_size=1, max_size=8), st.integers(1, 12))
def test_no_odds_break_the_budget(claimed, budget):
    sessions = [drafting(number, each) if each else make_session(number) for number, each in enumerate(claimed, 1)]
    found = lengths(make_choice(budget=budget, cost=DEAR), *sessions)
    assert sum(found) <= budget
    assert all(length <= len(each) for length, each in zip(found, claimed, strict=True))


# -- the ratio rule ----------------------------------------------------------------------------------------------------


@given(st.permutations([0.99, 0.7, 0.3, 0.01]), st.permutations([1, 2, 3, 4]))
def test_a_draft_of_the_ratio_rule_is_never_cut_for_what_it_is(claimed, tokens):
    """Whatever its tokens and their odds are, the cut is the same."""
    usual = drafting(1, (0.5,) * 4, verification="ratio")
    other = drafting(1, claimed, verification="ratio")
    other.draft = type(other.draft)(
        *(getattr(other.draft, name) for name in ("session_id", "epoch", "round", "base_len", "base_digest")),
        tuple(tokens),
        odds=other.draft.odds,
        num_ngram=tokens[0] % 3,
    )
    rival = drafting(2, (0.8, 0.6, 0.5, 0.4))
    assert lengths(make_choice(budget=5), other, rival) == lengths(make_choice(budget=5), usual, rival)


def test_a_draft_of_the_ratio_rule_is_cut_by_past_acceptance():
    good, bad = (drafting(n, None, verification="ratio", client=make_client(f"{n}")) for n in (1, 2))
    for _ in range(20):
        bad.acceptance.observe(0.0, 4)  # 0.085
    assert lengths(make_choice(budget=4), good, bad) == [4, 0]


def test_what_a_cut_draft_was_drawn_from_is_cut_with_it():
    session = drafting(1, None, verification="ratio", proposal=certain((1, 2, 3, 4)))
    assert make_choice(budget=2).choose([session], NOW)[session.session_id].proposal == certain((1, 2))


# -- what a key allows -------------------------------------------------------------------------------------------------


def test_a_keys_limit_holds_over_all_of_its_sessions():
    client = make_client("a", max_round_tokens=5)
    sessions = [offering(1, EVEN, client=client), offering(2, EVEN, client=client), drafting(3, EVEN, client=client)]
    found = lengths(make_choice(budget=12), *sessions, drafting(4, EVEN))
    assert (sum(found[:3]), found[3]) == (5, 4)
    assert max(found[:3]) == 2


def test_a_key_that_may_draft_nothing_has_nothing_verified():
    client = make_client("a", max_round_tokens=0)
    assert lengths(make_choice(), offering(1, EVEN, client=client)) == [0]


# -- offers ------------------------------------------------------------------------------------------------------------


def test_what_the_text_followed_of_an_offer_is_not_drafted_again():
    session = offering(1, (0.9, 0.8, 0.7, 0.6), tokens=(11, 12, 13, 14))
    grow(session, 11, 12)
    chosen = make_choice().choose([session], NOW)[session.session_id]
    assert (chosen.tokens, chosen.source, chosen.num_ngram) == ((13, 14), "ngram", 2)
    assert chosen.codes == odds.encode((0.7, 0.6))


def test_an_offer_that_the_text_left_is_forgotten():
    session = offering(1, EVEN, tokens=(11, 12, 13, 14))
    grow(session, 11, 9)
    assert session.offered is None
    assert lengths(make_choice(), session) == [0]


def test_an_offer_beyond_the_texts_end_is_cut_there():
    session = offering(1, EVEN, tokens=(11, 12, 13, 14), max_tokens=3)
    assert lengths(make_choice(), session) == [2]  # and one more that the round brings


@pytest.mark.parametrize("changes", [{"verification": "ratio"}, {"drafter": "model"}, {"drafter": "none"}])
def test_whose_rule_or_user_wants_no_offers_has_none_verified(changes):
    assert lengths(make_choice(), offering(1, EVEN, **changes)) == [0]


def test_a_draft_goes_before_an_offer():
    session = drafting(1, EVEN)
    session.take_offer(Offer(session.session_id, 1, len(session.tokens), (21, 22, 23, 24), odds.encode(EVEN)), NOW)
    assert make_choice().choose([session], NOW)[session.session_id].tokens == session.draft.tokens


def test_without_offers_only_drafts_are_looked_at():
    choice = make_choice()
    choice.looks_at_offers(False)
    assert lengths(choice, offering(1, EVEN), drafting(2, EVEN)) == [0, 4]
    choice.looks_at_offers(True)
    assert lengths(choice, offering(1, EVEN), drafting(2, EVEN)) == [4, 4]


def test_the_paper_looks_at_no_offers():
    assert Whole().choose([offering(1, EVEN)], NOW) == {}
    assert Whole().least_odds(make_session()) == ALL


# -- it takes no longer than it must -----------------------------------------------------------------------------------


def test_a_large_budget_is_not_gone_through():
    class Counting(Linear):
        def round_s(self, num_tokens, num_sessions, context_tokens):
            assert np.size(num_tokens) < 10
            return super().round_s(num_tokens, num_sessions, context_tokens)

    assert lengths(make_choice(budget=1 << 20, max_round_tokens=1 << 21, cost=Counting(0.01)), drafting(1, EVEN)) == [4]
