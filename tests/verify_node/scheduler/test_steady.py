"""Where a change of a round's size takes time, rounds verify as many drafted tokens as recent rounds made worth it."""

import pytest

from goodspeed.wire import probabilities
from tests.fakes import Desk
from tests.verify_node.scheduler.drafting import DEAR, NOW, drafting, lengths, make_choice
from verify_node.scheduler.select import BOUND_SHARE, HELD, Steady

SECONDS = [0.010, 0.012, 0.014, 0.016, 0.018]  # of a round with 0 to 4 drafted tokens
GOOD, BAD = [0.0, 0.9, 1.7, 1.8, 1.8], [0.0, 0.1, 0.1, 0.1, 0.1]


def test_the_number_is_the_one_of_most_worth_per_second():
    steady = Steady(4.0)
    assert steady.update(GOOD, 1.0, 1, SECONDS) == 2  # 2.7 / 14 ms, beside 1.9 / 12 and 2.8 / 16
    assert Steady(4.0).update(BAD, 1.0, 1, SECONDS) == 0


def test_one_round_with_other_drafts_changes_nothing_and_many_do():
    steady = Steady(4.0)
    for _ in range(40):
        steady.update(BAD, 1.0, 1, SECONDS)
    assert steady.update(GOOD, 1.0, 1, SECONDS) == 0
    found = [steady.update(GOOD, 1.0, 1, SECONDS) for _ in range(40)]
    assert found[-1] == 2
    assert found == sorted(found)


def test_a_round_that_pays_for_two_changes_alone_verifies_more_and_changes_nothing():
    steady = Steady(4.0)  # two changes take 16 ms
    for _ in range(40):
        steady.update(BAD, 1.0, 1, SECONDS)
    assert steady.update([0.0, 1.0, 1.9, 2.1, 2.1], 1.0, 1, SECONDS) == 0  # 2.9 / 30 ms are no more than 1 / 10 ms
    assert steady.update([0.0, 1.0, 2.0, 3.0, 4.0], 1.0, 1, SECONDS) == 4  # 5 / 34 ms are
    assert steady.number == 0


def test_a_budget_that_promises_lower_cuts_the_number():
    choice = make_choice(budget=4, change_rows=4.0)
    for most, expected in ((None, 4), (1, 1), (0, 0), (None, 4)):
        session = drafting(1, (0.9, 0.9, 0.9, 0.9))
        chosen = choice.choose([session], 1, NOW, most)
        assert sum(len(one.tokens) for one in chosen.values()) == expected


def test_a_change_must_pay_within_some_rounds():
    """With one drafted token the rate is 2 % higher: of 16 rounds of 10 ms that is 3.2 ms, or 1.6 rows."""
    little = [0.0, 0.224, 0.224, 0.224, 0.224]
    for rows, expected in ((1.5, 1), (1.7, 0)):
        steady = Steady(rows)
        for _ in range(40):
            steady.update([0.0] * 5, 1.0, 1, SECONDS)
        assert [steady.update(little, 1.0, 1, SECONDS) for _ in range(200)][-1] == expected
    assert HELD == 16


def test_another_number_of_sessions_changes_the_size_in_any_case():
    steady = Steady(1000.0)
    for _ in range(40):
        steady.update(BAD, 1.0, 1, SECONDS)
    for _ in range(100):
        assert steady.update(GOOD, 1.0, 1, SECONDS) == 0
    assert steady.update(GOOD, 1.0, 2, SECONDS) == 2


def test_a_choice_fills_the_number_also_with_what_is_not_worth_its_time_and_not_beyond_it():
    varying, steady = (make_choice(budget=4, cost=DEAR, change_rows=rows) for rows in (0.0, 4.0))
    for _ in range(60):  # 1.9 / 30 ms is more than 1 / 20 ms and 2.71 / 40 ms is a little more than that
        assert lengths(steady, drafting(1, (0.9, 0.9))) == lengths(varying, drafting(1, (0.9, 0.9))) == [2]
    assert lengths(varying, drafting(1, (0.9, 0.2))) == [1]
    assert lengths(steady, drafting(1, (0.9, 0.2))) == [2]
    assert lengths(varying, drafting(1, (0.9, 0.9, 0.9, 0.9))) == [4]
    assert lengths(steady, drafting(1, (0.9, 0.9, 0.9, 0.9))) == [2]


def test_the_least_probability_is_of_the_rows_own_time():
    choice, session = make_choice(budget=4, cost=DEAR, change_rows=4.0), drafting(1, (0.9, 0.9))
    choice.choose([session], 1, NOW)
    price = (1 + 0.9 + 0.81) / 0.04 * 0.01  # worth per second of the round, for a row's 10 ms
    claimed = probabilities.decode(bytes([choice.least_probability(session)]))[0]
    assert claimed == pytest.approx(BOUND_SHARE * price, rel=0.03)


@pytest.mark.parametrize("resting", [(False, True), (True, False)])
def test_rounds_in_which_draft_models_rest_teach_nothing_about_the_others(resting):
    """Else a return of the draft models would verify none of their tokens, and find that they bring nothing."""
    choice = make_choice(budget=4, cost=DEAR, change_rows=4.0)
    for _ in range(60):
        assert lengths(choice, drafting(1, (0.9, 0.9))) == [2]
    choice.turn_to(resting, is_trial=True)
    for _ in range(60):
        lengths(choice, drafting(1, ()))
    choice.turn_to((True, True), is_trial=False)
    assert lengths(choice, drafting(1, (0.9, 0.9))) == [2]


def test_a_trial_forgets_the_drafts_before_it():
    """A trial has 12 rounds: too few to unlearn that the drafts of an earlier text were poor."""
    choice = make_choice(budget=4, cost=DEAR, change_rows=4.0)
    for _ in range(60):
        assert lengths(choice, drafting(1, (0.1, 0.1))) == [0]
    choice.turn_to((False, True), is_trial=False)
    lengths(choice, drafting(1, ()))
    choice.turn_to((True, True), is_trial=True)
    lengths(choice, drafting(1, ()))  # the draft model has not answered yet
    assert lengths(choice, drafting(1, (0.9, 0.9))) == [2]


def test_a_round_with_prefill_has_the_size_that_it_needs():
    choice = make_choice(budget=4, cost=DEAR, change_rows=4.0)
    for _ in range(60):
        assert lengths(choice, drafting(1, (0.9, 0.9))) == [2]
    assert lengths(choice, drafting(1, (0.9, 0.2)), num_prefill=8) == [1]
    assert lengths(choice, drafting(1, (0.9, 0.2))) == [2]


def test_spare_rows_and_changes_of_size_count_as_rows_where_the_time_of_rounds_is_learned(monkeypatch):
    desk = Desk("a")
    desk.open()
    planned = desk.plan()
    outcomes = desk.target.run(planned)
    seen: list[float] = []
    monkeypatch.setattr(desk.core.rounds.cost, "observe", lambda num_tokens, *rest: seen.append(num_tokens))
    desk.core.rounds.finish(outcomes, 0.05, desk.now, computed=9.5)
    assert (planned.num_tokens, seen) == (3, [9.5])
