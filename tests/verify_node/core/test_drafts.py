"""Drafts while rounds go on: what they acknowledge, when they count, and what is learned of them."""

from typing import Any

import pytest

from goodspeed.wire import probabilities
from goodspeed.wire.fields import NodeSource
from goodspeed.wire.messages import Ack, Draft
from tests.fakes import Desk, expected, session_id
from verify_node.scheduler.choose import BOUND_SHARE, SELDOM, UNWAITED


@pytest.fixture
def desk() -> Desk:
    """A session of a draft node without a model after its first token."""
    desk = Desk("a", self_draft=False, draft_model="")
    desk.begin()
    return desk


def draft_of(desk: Desk, *, num: int = 4, source: NodeSource = "ngram") -> Draft:
    """A draft of the target's own next tokens, as an n-gram index makes it."""
    session = desk.session()
    base_len = len(session.tokens)
    first = base_len - len(session.opened.prompt)
    tokens = expected(max_tokens=40)[first : first + num]
    return Draft(session_id(1), session.epoch, base_len, tokens, probabilities.encode([0.9] * len(tokens)), source)


def test_a_draft_opens_the_window_again(desk: Desk) -> None:
    for _ in range(40):
        desk.round()
    session = desk.session()
    assert desk.round() == []
    desk.up("a", draft_of(desk))
    assert session.num_unacknowledged == 0
    assert len(desk.round()) == 1


def test_what_is_left_of_a_draft_is_verified_in_later_rounds(desk: Desk) -> None:
    desk.up("a", draft_of(desk, num=12))
    numbers = [(verdict.num_verified, verdict.num_accepted) for _ in range(2) for verdict in desk.round()]
    assert numbers == [(8, 8), (3, 3)], "the budget is 8, and a token of the draft is the first round's own"
    assert desk.text() == expected(max_tokens=40)[:14]


def test_a_draft_that_comes_while_a_round_is_in_flight_counts_for_the_next(desk: Desk) -> None:
    planned = desk.plan()
    desk.up("a", draft_of(desk, num=6))
    numbers = [(one.num_verified, one.num_accepted) for one in (*desk.finish(planned), *desk.round())]
    assert numbers == [(0, 0), (5, 5)]


def test_a_draft_that_crosses_the_last_verdict_asks_for_nothing() -> None:
    desk = Desk("a")
    desk.begin(max_tokens=2)
    crossing = draft_of(desk)
    [last] = desk.round()
    assert last.finish_reason
    assert desk.up("a", crossing) == []
    assert desk.session().drafts.newest is None
    assert desk.up("a", Ack(session_id(1), 1, crossing.base_len)) == [last]


def test_a_verdict_says_who_drafted_and_what_a_token_must_be_worth() -> None:
    desk = Desk("a", self_draft=False)
    desk.open()
    choice: Any = desk.core.rounds.choice
    usual, client = choice.choose, desk.session().client

    def priced(*given: Any) -> Any:
        """Each token has to be worth half of what a client's first token is."""
        chosen, choice._least_value = usual(*given), 0.5 * desk.core.allocator.worth_of(client)
        return chosen

    choice.choose = priced
    [verdict] = desk.round()
    assert verdict.source is None
    assert probabilities.bound(verdict.least_probability) == pytest.approx(BOUND_SHARE * 0.5, rel=0.05)
    for source in ("ngram", "model"):
        desk.up("a", draft_of(desk, source=source))
        [verdict] = desk.round()
        assert (verdict.num_verified, verdict.source) == (4, source)


def test_what_an_index_drafts_counts_by_source_and_not_for_the_acceptance_rate(desk: Desk) -> None:
    client = desk.session().client
    before = client.acceptance.value
    desk.up("a", draft_of(desk))
    desk.round()
    assert client.acceptance.value == before
    for counts in (desk.core.counts.drafted_by, client.num_drafted_by):
        assert dict(counts) == {"ngram": 4}
    assert dict(desk.core.counts.accepted_by) == dict(client.num_accepted_by) == {"ngram": 4}
    assert sum(client.calibration("ngram").tries) == pytest.approx(4, rel=0.01)


def test_what_is_drafted_beyond_a_texts_end_makes_no_claim_believed() -> None:
    """The text is over at its third token; the target would have agreed with the drafted ones after it, too."""
    desk = Desk("a")
    right = expected(max_tokens=40)
    assert right[2] not in right[:2]
    desk.begin(stop_ids=(right[2],))
    client = desk.session().client
    desk.draft()
    [verdict] = desk.round()
    assert (verdict.finish_reason, len(verdict.tokens)) == ("stop", 1)
    assert (verdict.num_verified > 3, verdict.num_accepted) == (True, 1)
    assert client.num_accepted == 1
    assert sum(client.calibration("model").hits) == pytest.approx(2.0, rel=0.01)
    assert sum(client.calibration("model").tries) == pytest.approx(2.0, rel=0.01)


def waiting_desk() -> Desk:
    """A session whose draft node answers in 10 ms, beside rounds of 100 ms."""
    desk = Desk("a", self_draft=False)
    desk.open(max_tokens=40)
    for _ in range(4):
        desk.round(0.1)
        desk.now += 0.01
        desk.up("a", draft_of(desk, num=1))
    desk.round(0.1)
    return desk


def test_a_round_waits_for_the_index_of_a_near_draft_node() -> None:
    desk = waiting_desk()
    assert desk.core.plan(desk.now) is None
    desk.now += 0.01
    desk.up("a", draft_of(desk))
    planned = desk.plan()
    assert planned.num_drafted == 4


@pytest.mark.parametrize(("num_seen", "rounds"), [(0, UNWAITED), (30, SELDOM)])
def test_one_of_some_rounds_waits_for_no_draft_and_fewer_once_it_is_known_what_waiting_brings(num_seen, rounds):
    desk = waiting_desk()
    client = desk.session().client
    for _ in range(num_seen):
        client.answer_gain.observe(5, in_time=True)
        client.answer_gain.observe(0, in_time=False)
    waits = [bool(desk.core.rounds.choice.pending_drafts([desk.session()], number)) for number in range(2 * rounds)]
    assert waits.count(False) == 2


def test_only_rounds_that_needed_an_answer_show_what_it_brings() -> None:
    """No round waits for another draft while the text still follows the previous one."""
    desk = Desk("a", self_draft=False)
    desk.begin(max_tokens=60)
    desk.up("a", draft_of(desk, num=12))
    gain = desk.session().client.answer_gain
    desk.round()
    seen = gain._in_time.num, gain._too_late.num
    assert desk.session().drafts.newest is not None
    desk.now += 0.01
    desk.round()
    assert (gain._in_time.num, gain._too_late.num) == seen


def test_claims_that_are_not_worth_verifying_are_judged_by_the_targets_tokens() -> None:
    """Else a client whose claims were once wrong would never be verified again."""
    desk = Desk("a", self_draft=False)
    desk.open(max_tokens=60)
    calibration = desk.session().client.calibration("ngram")
    for _ in range(40):
        calibration.observe(probabilities.encode([0.9]), 0)
    refuted = calibration.probabilities(probabilities.encode([0.9]))[0]
    desk.core.rounds.choice.choose = lambda *given: {}  # type: ignore[method-assign]
    for _ in range(20):
        desk.up("a", draft_of(desk, num=1))
        desk.round()
    assert calibration.probabilities(probabilities.encode([0.9]))[0] > 4 * refuted
