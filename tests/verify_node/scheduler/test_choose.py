"""A round verifies chosen drafted tokens: small rounds by hand, then the law that no rule is ever broken."""

from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.engine.paged.pages import PagePool
from goodspeed.exact.proposal_bytes import certain
from goodspeed.fair.round_time import CostModel, Linear, Roofline
from goodspeed.wire import probabilities
from tests.fakes import Desk, session_id
from tests.verify_node.phases import new_client
from tests.verify_node.scheduler.drafting import DEAR, NOW, drafting, lengths, make_choice, make_session, owe, pack
from verify_node.scheduler.choose import ALL, BOUND_SHARE, HELD, SELDOM, Steady

EVEN = (0.9, 0.9, 0.9, 0.9)


# -- colliding drafts --------------------------------------------------------------------------------------------------


def test_colliding_drafts_fill_the_budget_and_nobody_is_deferred():
    sessions = [drafting(number, EVEN) for number in range(1, 5)]
    pool = PagePool(64, 4)
    for session in sessions:
        pool.extend(session.session_id, len(session.tokens) - 1)
    chosen = [make_choice(budget=10, is_barrier=one).choose(sessions, 1, NOW) for one in (False, True)]
    cut, whole = (pack(sessions, pool, 10, 64, drafted=drafted) for drafted in chosen)
    assert (cut.num_drafted, cut.deferred, len(cut.entries)) == (10, (), 4)
    assert (whole.num_drafted, len(whole.deferred)) == (8, 2)


def test_a_cut_draft_keeps_what_belongs_to_its_tokens():
    sessions = [drafting(1, (0.96, 0.9, 0.9, 0.9), source="ngram"), drafting(2, EVEN)]
    planned = pack(sessions, PagePool(64, 4), 4, 64, drafted=make_choice(budget=4).choose(sessions, 1, NOW))
    for entry, session in zip(planned.entries, sessions, strict=True):
        assert entry.num_drafted == 2
        assert entry.tokens[-2:] == session.drafts.newest.tokens[:2]
        assert entry.drafted.codes == session.drafts.newest.codes[:2]
        assert entry.source == session.drafts.newest.source


def test_a_draft_without_claims_counts_by_the_acceptance_rate():
    """As if each token claimed 0.7, which with others up to 0.8 is expected to come true as often as 0.75.

    So 0.75, 0.56 and 0.42 against 0.6, 0.54 and 0.49.
    """
    assert lengths(make_choice(budget=3), drafting(1, None), drafting(2, (0.6, 0.9, 0.9))) == [2, 1]


def test_worth_decides_who_gets_more():
    heavy, light = (drafting(n, EVEN, client=new_client(f"{n}", weight=w)) for n, w in ((1, 3.0), (2, 1.0)))
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
    cost, draft = Linear(fixed_s=0.001, context_s=0.001), (0.6, 0.9)
    assert lengths(make_choice(cost=cost), drafting(1, draft)) == [2]
    assert lengths(make_choice(cost=cost, reads_per_row=True), drafting(1, draft)) == [0], "each reads its context"


def test_least_probability_follow_from_the_price_of_the_last_round():
    choice, session = make_choice(cost=DEAR, budget=4), drafting(1, EVEN)
    assert choice.least_probability(session) == ALL
    lengths(choice, session)
    assert choice.least_probability(session) < ALL
    dearer = choice.least_probability(make_session(2, new_client("b", weight=0.5)))
    assert dearer < choice.least_probability(session)  # a code: lower is likelier
    lengths(choice, make_session(2), make_session(3))
    assert choice.least_probability(session) < ALL
    # not the bound of an unknown price, at which a draft node's index ends its drafts much sooner
    free = make_choice(cost=Roofline((Linear(fixed_s=0.01), Linear(token_s=0.0001))), budget=4)
    lengths(free, session)
    assert free.least_probability(make_session()) == probabilities.code(probabilities.FLOOR)


def test_beside_prefill_drafted_tokens_cost_what_they_cost_beyond_the_ridge():
    """0.1 more tokens are not worth 1 ms of a round of 10; without prefill they cost nothing."""
    ridge = Roofline((Linear(fixed_s=0.01), Linear(token_s=0.001)))  # up to ten tokens take as long as one
    assert lengths(make_choice(cost=ridge), drafting(1, (0.9, 0.1))) == [2]
    assert lengths(make_choice(cost=ridge), drafting(1, (0.9, 0.1)), num_prefill=20) == [1]


def test_drafts_do_not_pay_for_the_time_of_prefill():
    """Prefill changes no choice and no bound if a token always costs the same."""
    found = set()
    for num_prefill in (0, 50):
        choice = make_choice(cost=DEAR, budget=4)
        found.add(
            (*lengths(choice, drafting(1, EVEN), num_prefill=num_prefill), choice.least_probability(make_session()))
        )
    assert len(found) == 1


def test_the_price_falls_again_in_rounds_without_drafts():
    """Else own drafts would stop for good: they end where the last price ends them."""
    choice = make_choice(cost=Linear(fixed_s=0.05, token_s=0.01))
    lengths(choice, *(drafting(number, EVEN) for number in range(1, 3)))
    after_many = choice.least_probability(make_session())
    lengths(choice, make_session(3))
    assert choice.least_probability(make_session()) > after_many


def test_clients_take_turns_in_what_is_left_of_the_budget():
    choice, sessions = make_choice(budget=2), [drafting(number, (0.8,)) for number in (1, 2, 3)]
    rounds = [choice.choose(sessions, number, NOW) for number in range(3)]
    served = [sum(len(chosen[one.session_id].tokens) for chosen in rounds) for one in sessions]
    assert served == [2, 2, 2]


# -- hostile probabilities ---------------------------------------------------------------------------------------------


def test_claims_that_proved_wrong_do_not_push_others_out():
    liar, honest = drafting(1, (1.0,) * 4), drafting(2, (0.8,) * 4)
    assert lengths(make_choice(budget=4), liar, honest) == [4, 0]
    for _ in range(40):
        liar.client.calibration("model").observe(liar.drafts.newest.codes, 0)
    assert lengths(make_choice(budget=4), liar, honest) == [0, 4]


def test_each_source_is_calibrated_by_itself():
    """Wrong words of the index do not count for what the model says, nor for the verify node's own."""
    session = drafting(1, (0.9, 0.9), source="ngram")
    for _ in range(50):
        session.client.calibration("ngram").observe(session.drafts.newest.codes, 0)
    other = drafting(2, (0.5, 0.5))
    assert lengths(make_choice(budget=1), session, other) == [0, 1]
    by_model = drafting(3, (0.9, 0.9), client=session.client)
    assert lengths(make_choice(budget=1), by_model, other) == [1, 0]


# -- the ratio rule ----------------------------------------------------------------------------------------------------


@given(st.permutations([0.99, 0.7, 0.3, 0.01]), st.permutations([1, 2, 3, 4]))
def test_a_draft_of_the_ratio_rule_is_never_cut_for_what_it_is(claimed, tokens):
    """Whatever its tokens and their probabilities are, the cut is the same."""
    usual = drafting(1, (0.5,) * 4, verification="ratio")
    other = drafting(1, claimed, tokens=tokens, verification="ratio")
    rival = drafting(2, (0.8, 0.6, 0.5, 0.4))
    found = lengths(make_choice(budget=5), other, rival)
    assert found == lengths(make_choice(budget=5), usual, rival)
    assert 0 < found[0] < 4


def test_a_draft_of_the_ratio_rule_is_cut_by_past_acceptance_and_what_it_was_drawn_from_with_it():
    good, bad = (drafting(n, None, verification="ratio", client=new_client(f"{n}")) for n in (1, 2))
    for _ in range(20):
        bad.acceptance.observe(0.0, 4)  # 0.085
    assert lengths(make_choice(budget=4), good, bad) == [4, 0]
    assert make_choice(budget=2).choose([good], 1, NOW)[good.session_id].proposal == certain((1, 2))


# -- what is left of a draft -------------------------------------------------------------------------------------------


def test_what_the_text_followed_of_a_draft_is_not_verified_again_nor_what_is_beyond_its_end():
    session = drafting(1, (0.9, 0.8, 0.7, 0.6), tokens=(11, 12, 13, 14), source="ngram")
    session.commit((11, 12))
    chosen = make_choice().choose([session], 1, NOW)[session.session_id]
    assert (chosen.tokens, chosen.source) == ((13, 14), "ngram")
    assert chosen.codes == probabilities.encode((0.7, 0.6))
    assert lengths(make_choice(), drafting(2, EVEN, max_tokens=3)) == [2]  # and one more that the round brings


@pytest.mark.parametrize("source", ["model", "ngram"])
@pytest.mark.parametrize("drafter", ["auto", "model", "ngram", "none"])
def test_only_what_may_draft_for_a_session_is_verified(source, drafter):
    found = lengths(make_choice(), drafting(1, EVEN, source=source, drafter=drafter))
    assert found == [4 if drafter in ("auto", source) else 0]


@pytest.mark.parametrize(("cost", "left"), [(Linear(fixed_s=0.01), (0.2, 0.3)), (DEAR, (0.0, 0.06))])
def test_a_wait_is_worth_less_where_verification_takes_time(cost: CostModel, left: tuple[float, float]):
    """Free tokens: only rounds that bring more are dearer. Dear ones: drafts bring hardly more than their time."""
    choice, session = make_choice(cost=cost), drafting(1, EVEN)
    session.client.has_index = True
    expecting = make_session(2, client=session.client)
    expecting.commit((7,))
    before = [one.num_expected for one in choice.pending_drafts([expecting], 2)]
    for number in range(30):
        choice.choose([session], number, NOW)
    after = [one.num_expected for one in choice.pending_drafts([expecting], 2)]
    assert len(before) == len(after) == 1
    assert left[0] <= after[0] / before[0] <= left[1]
    [tried] = choice.pending_drafts([expecting], SELDOM + 1)
    assert tried.num_expected == 8.0, "a wait is tried again, as if its draft brought the whole budget"


def test_the_paper_verifies_as_much_as_was_permitted_whatever_it_claims():
    session = drafting(1, (0.01,) * 4)
    session.drafts.may_draft = 3
    choice = make_choice(budget=10, is_barrier=True)
    assert (choice.least_probability(session), choice.pending_drafts([session], 1)) == (ALL, [])
    chosen = choice.choose([session, make_session(2)], 1, NOW)
    assert chosen[session.session_id].tokens == session.drafts.newest.tokens[:3]
    assert chosen[session_id(2)].tokens == ()


def test_a_large_budget_is_not_gone_through():
    class Counting(Linear):
        def round_s(self, num_tokens, num_sessions, context_tokens):
            assert np.size(num_tokens) < 10
            return super().round_s(num_tokens, num_sessions, context_tokens)

    assert lengths(make_choice(budget=1 << 20, max_round_tokens=1 << 21, cost=Counting(0.01)), drafting(1, EVEN)) == [4]


# -- sessions with objectives are served before tokens are chosen by their value ---------------------------------------


POOR = (0.3, 0.3, 0.3, 0.3)


def test_who_is_owed_more_than_a_token_has_drafts_verified_that_would_not_pay():
    session = drafting(1, POOR)
    assert lengths(make_choice(cost=DEAR), session) == [0]
    assert lengths(make_choice(cost=DEAR), owe(session, 1.1)) == [3], "they bring 0.42, the first two 0.39"
    assert lengths(make_choice(cost=DEAR), owe(session, 1.5)) == [0], "all of them bring too little"
    assert lengths(make_choice(cost=DEAR), owe(drafting(1, POOR), 1.0)) == [1]
    without = lengths(make_choice(budget=4), drafting(1, POOR), drafting(2, EVEN))
    for owed in (0.0, 0.8):  # it is on time
        assert lengths(make_choice(budget=4), owe(drafting(1, POOR), owed), drafting(2, EVEN)) == without


def test_a_round_stays_short_for_whom_one_token_keeps_on_time():
    """One token is due 50 ms after the first one; a round takes 10 ms, and 10 ms for every token."""
    plain, on_time = (make_session(1, new_client("tight", weight=9.0)) for _ in range(2))
    owe(on_time, 0.5)
    eager = drafting(2, (0.99,) * 8, client=new_client("eager", weight=1.0))

    def verified(beside, fixed_s, token_s, **options):
        choice = make_choice(cost=Linear(fixed_s=fixed_s, token_s=token_s), worth=lambda client: 1.0, **options)
        return lengths(choice, beside, eager)[1]

    assert verified(on_time, 0.01, 0.001, budget=64) == 8
    assert verified(plain, 0.041, 0.002) > 2
    assert verified(on_time, 0.041, 0.002) == 2, "41 + 2 x 2 + 2 x 2 ms"


def test_who_is_behind_is_asked_to_draft_on_whatever_it_costs():
    choice = make_choice(cost=DEAR)
    behind, other = owe(drafting(1, EVEN), 3.0), drafting(2, EVEN)
    lengths(choice, behind, other)
    assert choice.owes_more(behind)
    assert not choice.owes_more(other)
    assert probabilities.bound(choice.least_probability(behind)) < probabilities.bound(choice.least_probability(other))


# -- where a change of a round's size takes time -----------------------------------------------------------------------


SECONDS = [0.010, 0.012, 0.014, 0.016, 0.018]  # of a round with 0 to 4 drafted tokens
GOOD, BAD = [0.0, 0.9, 1.7, 1.8, 1.8], [0.0, 0.1, 0.1, 0.1, 0.1]


def used_to(gains, change_rows):
    """After 40 rounds in which drafted tokens brought so much."""
    steady = Steady(change_rows)
    for _ in range(40):
        steady.update(gains, 1.0, 1, SECONDS)
    return steady


def test_one_round_with_other_drafts_changes_nothing_and_many_do():
    steady = used_to(BAD, 4.0)
    assert steady.update(GOOD, 1.0, 1, SECONDS) == 0
    found = [steady.update(GOOD, 1.0, 1, SECONDS) for _ in range(40)]
    assert found[-1] == 2
    assert found == sorted(found)


def test_a_round_that_pays_for_two_changes_alone_verifies_more_and_changes_nothing():
    steady = used_to(BAD, 4.0)  # two changes take 16 ms
    assert steady.update([0.0, 1.0, 1.9, 2.1, 2.1], 1.0, 1, SECONDS) == 0  # 2.9 / 30 ms are no more than 1 / 10 ms
    assert steady.update([0.0, 1.0, 2.0, 3.0, 4.0], 1.0, 1, SECONDS) == 4  # 5 / 34 ms are
    assert steady.number == 0


def test_a_budget_that_promises_lower_cuts_the_number():
    choice = make_choice(budget=4, change_rows=4.0)
    for most, expected in ((None, 4), (1, 1), (0, 0), (None, 4)):
        chosen = choice.choose([drafting(1, EVEN)], 1, NOW, most)
        assert sum(len(one.tokens) for one in chosen.values()) == expected


def test_a_change_must_pay_within_some_rounds():
    """With one drafted token the rate is 2 % higher: of 16 rounds of 10 ms that is 3.2 ms, or 1.6 rows."""
    little = [0.0, 0.224, 0.224, 0.224, 0.224]
    for rows, expected in ((1.5, 1), (1.7, 0)):
        steady = used_to([0.0] * 5, rows)
        assert [steady.update(little, 1.0, 1, SECONDS) for _ in range(200)][-1] == expected
    assert HELD == 16


def test_another_number_of_sessions_changes_the_size_in_any_case():
    steady = used_to(BAD, 1000.0)
    for _ in range(100):
        assert steady.update(GOOD, 1.0, 1, SECONDS) == 0
    assert steady.update(GOOD, 1.0, 2, SECONDS) == 2


def steady_choice(claimed, verified):
    """A choice for which changes take time, after many rounds that verified so much of such drafts."""
    choice = make_choice(budget=4, cost=DEAR, change_rows=4.0)
    for _ in range(60):
        assert lengths(choice, drafting(1, claimed)) == [verified]
    return choice


def test_a_choice_fills_the_number_also_with_what_is_not_worth_its_time_and_not_beyond_it():
    varying = make_choice(budget=4, cost=DEAR)
    # 1.9 / 30 ms is more than 1 / 20 ms and 2.71 / 40 ms is a little more than that
    assert lengths(varying, drafting(1, (0.9, 0.9))) == [2]
    steady = steady_choice((0.9, 0.9), 2)
    for claimed, of_varying in (((0.9, 0.2), 1), (EVEN, 4)):
        assert lengths(varying, drafting(1, claimed)) == [of_varying]
        assert lengths(steady, drafting(1, claimed)) == [2]


def test_the_least_probability_is_of_the_rows_own_time():
    choice, session = make_choice(budget=4, cost=DEAR, change_rows=4.0), drafting(1, (0.9, 0.9))
    choice.choose([session], 1, NOW)
    price = (1 + 0.9 + 0.81) / 0.04 * 0.01  # worth per second of the round, for a row's 10 ms
    claimed = probabilities.PROBABILITIES[choice.least_probability(session)]
    assert claimed == pytest.approx(BOUND_SHARE * price, rel=0.03)


def test_rounds_in_which_draft_models_rest_teach_nothing_about_the_others():
    """Else a return of the draft models would verify none of their tokens, and find that they bring nothing."""
    choice = steady_choice((0.9, 0.9), 2)
    choice.turn_to(False, is_trial=True)
    for _ in range(60):
        lengths(choice, drafting(1, ()))
    choice.turn_to(True, is_trial=False)
    assert lengths(choice, drafting(1, (0.9, 0.9))) == [2]


def test_a_trial_forgets_the_drafts_before_it():
    """A trial has 12 rounds: too few to unlearn that the drafts of an earlier text were poor."""
    choice = steady_choice((0.1, 0.1), 0)
    choice.turn_to(False, is_trial=False)
    lengths(choice, drafting(1, ()))
    choice.turn_to(True, is_trial=True)
    lengths(choice, drafting(1, ()))  # the draft model has not answered yet
    assert lengths(choice, drafting(1, (0.9, 0.9))) == [2]


def test_a_round_with_prefill_has_the_size_that_it_needs():
    choice = steady_choice((0.9, 0.9), 2)
    assert lengths(choice, drafting(1, (0.9, 0.2)), num_prefill=8) == [1]
    assert lengths(choice, drafting(1, (0.9, 0.2))) == [2]


def test_spare_rows_and_changes_of_size_count_as_rows_where_the_time_of_rounds_is_learned(monkeypatch):
    desk, observe = Desk("a"), Mock()
    desk.open()
    planned = desk.plan()
    outcomes = desk.target.run(planned)
    monkeypatch.setattr(desk.core.rounds.cost, "observe", observe)
    desk.core.rounds.finish(outcomes, 0.05, desk.now, computed=9.5)
    assert (planned.num_tokens, observe.call_args.args[0]) == (3, 9.5)
