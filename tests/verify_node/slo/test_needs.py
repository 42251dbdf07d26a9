"""A round owes drafted tokens to sessions with deadlines, within bounds and in order; a liar takes only a part."""

from itertools import accumulate, count
from operator import mul

import pytest

from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Slo
from verify_node.session.deadline import Deadline
from verify_node.slo.needs import Needs

NOW = 11.0
NUMBERS = count()


def text(owed, client="a", probabilities=(0.9,) * 8, tpot_s=0.1):
    """A text that is owed so many tokens by a round that takes no time, and the path probability of its drafted
    tokens."""
    slo = Objectives(tpot_s=tpot_s)
    deadline = Deadline.open(next(NUMBERS).to_bytes(8), client, Slo(slo), slo, 0, 0.0, NOW)
    deadline.delivered(1, NOW - owed * tpot_s)
    return deadline, list(accumulate(probabilities, mul))


def asked(*texts, weights=None, budget=24):
    deadlines = [deadline for deadline, _ in texts]
    needs = Needs(deadlines, weights or {one.client: 1.0 for one in deadlines}, 0.0, NOW)
    return list(needs.of_drafts({one.session_id: probabilities for one, probabilities in texts}, budget).values())


def test_no_text_needs_more_than_a_fifth_beyond_an_equal_part():
    def both(owed):
        return asked(*(text(owed, name, probabilities=(1.0,) * 24) for name in "ab"), budget=10)

    assert both(6.0) == [pytest.approx(5.0)] * 2, "half of the budget each: 1.2 times 5 is 6, and the client's share 5"
    assert both(6.1) == [0.0, 0.0]


def test_a_clients_texts_share_its_weights_part_of_the_budget():
    liar = [text(3.0, "liar", probabilities=(1.0,) * 24) for _ in range(4)]
    honest = [text(2.0, name) for name in "bcd"]
    found = asked(*liar, *honest, budget=24)
    assert sorted(found[:4]) == pytest.approx([0.0, 2.0, 2.0, 2.0]), "one client of four"
    assert found[4:] == [pytest.approx(1.0)] * 3


def test_a_weight_makes_the_part_larger_in_which_the_largest_need_goes_first():
    texts = [text(5.0, "a", probabilities=(1.0,) * 24), text(3.0, "b", probabilities=(1.0,) * 24)]
    assert asked(*texts, weights={"a": 3.0, "b": 1.0}, budget=8) == pytest.approx([4.0, 2.0])
    assert asked(*texts, weights={"a": 1.0, "b": 3.0}, budget=8) == pytest.approx([0.0, 2.0])
    later, sooner = asked(text(2.0), text(2.7), weights={"a": 1.0, "b": 1.0}, budget=4)
    assert (later, sooner) == (0.0, pytest.approx(1.7)), "0.9 + 0.81: both of the two tokens that are the client's"


def test_with_more_clients_than_budget_each_may_need_one_token():
    texts = [text(1.9, f"client-{number}") for number in range(30)]
    assert asked(*texts, budget=24) == [pytest.approx(0.9)] * 30, "of whom the round serves those that need most"
    alone = asked(text(1.9), weights={"a": 1.0} | {f"other-{number}": 1.0 for number in range(40)}, budget=24)
    assert alone == [pytest.approx(0.9)]


def test_who_is_behind_needs_what_a_token_alone_does_not_bring_and_none_if_late_with_all_drafted_ones():
    assert asked(text(1.75, probabilities=(0.5, 0.5))) == [pytest.approx(0.75)]
    assert asked(text(1.8, probabilities=(0.5, 0.5))) == [0.0]
    assert asked(text(5.0, probabilities=())) == [0.0]
    neediest, other = asked(text(9.0, probabilities=(0.9, 0.9)), text(1.9), weights={"a": 1.0}, budget=2)
    assert (neediest, other) == (0.0, pytest.approx(0.9)), "it takes no tokens from the other"
    crowd = [text(59.0, probabilities=(0.9, 0.9)) for _ in range(15)]
    assert asked(text(2.5), *crowd, weights={"a": 1.0})[0] == pytest.approx(1.5), "nor makes its part smaller"
    assert asked(text(2.5), text(1.0, "b")) == [pytest.approx(1.5), 0.0]


def test_the_round_stays_as_short_as_those_need_whom_one_token_keeps_on_time():
    """The quick text can wait for 50 ms; its client takes no more than its half of the budget from the others."""
    slow, quick, lost = text(0.0, tpot_s=0.2), text(0.5, "b", tpot_s=0.1), text(3.0)
    seconds = [0.0099 * number for number in range(1, 30)]

    def most(*texts):
        return Needs([one for one, _ in texts], {"a": 3.0, "b": 1.0}, 0.01, NOW).most_drafted(seconds, 24)

    assert most(slow, quick, lost) == 18, "all but its quarter of 24"
    assert Needs([quick[0]], {"b": 1.0}, 0.01, NOW).most_drafted(seconds, 24) == 4
    assert Needs([slow[0]], {"a": 1.0}, 0.01, NOW).most_drafted(seconds, 24) == 19
    assert most(lost) == most() == 24
