"""Offers at the verify node: what they acknowledge, when they count, and what is said to whom about them."""

from typing import Any

import pytest

from goodspeed.wire import odds
from goodspeed.wire.messages import Ack, Close, Offer, Refusal, Verdict
from tests.fakes import Desk, alone, make_open, replace_message, request_of, session_id
from verify_node.core.settings import ALWAYS
from verify_node.rounds.choice import ALL, SELDOM_UNWAITED, UNWAITED
from verify_node.rounds.planner import OFFER_SHARE
from verify_node.session.offered import Offered

NEW = ("odds", "offers", "no_model")


@pytest.fixture
def desk() -> Desk:
    """A verify node that selects, and a session of a draft node without a model after its first token."""
    desk = Desk(selection="odds", self_draft=False)
    desk.hello(capabilities=NEW)
    desk.open()
    desk.round()
    return desk


def target_text(number: int = 1) -> tuple[int, ...]:
    """The first tokens that the target writes for session `number` alone."""
    return tuple(alone(request_of(make_open(number, max_tokens=40))))


def offer_of(desk: Desk, number: int = 1, *, num: int = 4, skipped: int = 0, **changes: Any) -> Offer:
    """An offer of the target's own next tokens, on the text without its last `skipped` tokens."""
    session = desk.session(number)
    base_len = len(session.tokens) - skipped
    right = target_text(number)
    first = base_len - len(session.opened.prompt)
    tokens = tuple(right[first : first + num])
    offer = Offer(session.session_id, session.epoch, base_len, tokens, odds.encode([0.9] * len(tokens)))
    return replace_message(offer, **changes)


def test_what_is_offered_is_verified_in_the_next_round(desk: Desk) -> None:
    assert desk.up("a", offer_of(desk)) == []
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.num_accepted, len(verdict.tokens)) == (4, 4, 5)
    assert (verdict.round, verdict.source, verdict.next_length) == (None, "ngram", 0)
    assert desk.text() == target_text()[:6]


def test_wrong_offers_change_no_text(desk: Desk) -> None:
    right = offer_of(desk)
    wrong = replace_message(right, tokens=(right.tokens[0], *((token + 1) % 6 for token in right.tokens[1:])))
    desk.up("a", wrong)
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.num_accepted) == (4, 1)
    assert desk.text() == target_text()[: len(desk.text())]
    assert desk.session().offered is None


def test_an_offer_acknowledges(desk: Desk) -> None:
    session = desk.session()
    assert session.acked < len(session.tokens)
    desk.up("a", offer_of(desk))
    assert session.acked == len(session.tokens)


def test_an_offer_opens_the_window_again(desk: Desk) -> None:
    for _ in range(40):
        desk.round()
    session = desk.session()
    assert desk.round() == []
    desk.up("a", offer_of(desk))
    assert session.num_unacknowledged == 0
    assert len(desk.round()) == 1


def test_older_offers_do_not_replace_newer_ones(desk: Desk) -> None:
    older = offer_of(desk, num=8)
    desk.round()
    newer = offer_of(desk, num=6)
    desk.up("a", newer)
    desk.up("a", older)
    assert desk.session().offered == Offered.read(newer, desk.session().tokens)


def test_an_offer_on_less_of_the_text_is_of_use_where_it_goes_on(desk: Desk) -> None:
    late = offer_of(desk, num=6)
    desk.round()
    desk.round()
    desk.up("a", late)
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.num_accepted) == (4, 4)


def test_an_offer_that_comes_while_a_round_is_in_flight_counts_for_the_next(desk: Desk) -> None:
    planned = desk.core.plan(desk.now)
    assert planned is not None
    desk.up("a", offer_of(desk, num=6))
    [verdict] = desk.finish(planned)
    assert verdict.num_verified == 0
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.num_accepted) == (5, 5)


def test_a_session_that_is_opened_again_has_no_offer(desk: Desk) -> None:
    desk.up("a", offer_of(desk))
    desk.open(epoch=2, committed=desk.text())
    assert desk.session().offered is None
    [verdict] = desk.round()
    assert verdict.num_verified == 0


def test_one_of_the_old_epoch_is_refused(desk: Desk) -> None:
    old = offer_of(desk)
    desk.open(epoch=2, committed=desk.text())
    [refused] = desk.up("a", old)
    assert (refused.code, desk.session().offered) == ("stale_epoch", None)


def test_rounds_one_by_one_verify_offers_too(desk: Desk) -> None:
    desk.open(number=2)
    desk.round()
    for number in (1, 2):
        desk.up("a", offer_of(desk, number))
    planned = desk.core.plan(desk.now)
    assert planned is not None
    assert len(planned.entries) == 2
    desk.core.abort("out of memory", desk.now)
    verdicts = [verdict for _ in range(2) for verdict in desk.round()]
    assert [verdict.num_verified for verdict in verdicts] == [4, 4]
    assert {verdict.session_id for verdict in verdicts} == {session_id(1), session_id(2)}


def test_a_preempted_session_keeps_its_offer_until_it_is_computed_again() -> None:
    desk = Desk(selection="odds", self_draft=False, num_pages=6, page_size=4)
    desk.hello(capabilities=NEW)
    for number in (1, 2):
        desk.open(number=number, prompt=(1, 2, 3))
    verified = 0
    for _ in range(60):
        for number in (1, 2):
            if session_id(number) in desk.core.sessions and not desk.session(number).finished:
                session = desk.session(number)
                tokens = tuple(range(3))
                offer = Offer(session.session_id, 1, len(session.tokens), tokens, bytes(3))
                desk.up("a", offer)
        verified += sum(verdict.num_verified for verdict in desk.round() if isinstance(verdict, Verdict))
    assert desk.core.counts.num_preempted > 0
    assert verified > 0
    for number in (1, 2):
        assert desk.session(number).finished
        assert desk.text(number) == target_text(number)[:20]


# -- refusals ----------------------------------------------------------------------------------------------------------


def code(answers: list[Any]) -> str:
    [answer] = answers
    assert isinstance(answer, Refusal)
    return answer.code


def test_offers_for_sessions_that_are_not_open_are_refused(desk: Desk) -> None:
    assert code(desk.up("a", offer_of(desk, session_id=session_id(9)))) == "unknown_session"
    offer = offer_of(desk)
    desk.up("a", Close(session_id(1), 1))
    assert code(desk.up("a", offer)) == "unknown_session"


def test_offers_for_the_ratio_rule_are_refused() -> None:
    desk = Desk(selection="odds")
    desk.hello(capabilities=NEW)
    desk.open(verification="ratio")
    desk.round()
    assert code(desk.up("a", offer_of(desk))) == "unsupported"
    assert desk.session().offered is None


def test_offers_on_more_than_there_is_or_beyond_the_vocabulary_are_refused(desk: Desk) -> None:
    offer = offer_of(desk)
    assert code(desk.up("a", replace_message(offer, base_len=offer.base_len + 1))) == "wrong_base"
    assert code(desk.up("a", replace_message(offer, tokens=(1 << 20,) * 4))) == "vocabulary"
    assert desk.session().acked < len(desk.session().tokens)


def test_nobody_offers_for_anothers_session(desk: Desk) -> None:
    desk.hello("b", capabilities=NEW)
    assert code(desk.up("b", offer_of(desk))) == "not_owner"


def test_an_offer_for_a_finished_session_asks_for_its_end_again() -> None:
    desk = Desk(selection="odds")
    desk.hello(capabilities=NEW)
    desk.open(max_tokens=2)
    desk.round()
    offer = offer_of(desk)
    [last] = desk.round()
    assert last.finish_reason
    [again] = desk.up("a", offer)
    assert (again.finish_reason, again.tokens) == (last.finish_reason, last.tokens)
    assert desk.session().offered is None


# -- who is told what --------------------------------------------------------------------------------------------------


def test_a_verify_node_announces_what_it_selects_by() -> None:
    selecting, plain = (Desk(selection=name).hello().capabilities for name in ("odds", "none"))
    assert selecting == ("odds", "offers", "model_offers", "trees", *plain)
    assert plain == (*ALWAYS, "prefix_cache")


@pytest.mark.parametrize(("capabilities", "source"), [(("offers",), None), (("odds", "offers"), "ngram")])
def test_only_peers_that_understand_it_are_told_sources_and_least_odds(capabilities: Any, source: Any) -> None:
    desk = Desk(selection="odds", self_draft=False)
    desk.hello(capabilities=(*capabilities, "no_model"))
    desk.open()
    desk.core.choice._least_value = 0.5  # type: ignore[attr-defined]
    usual = desk.core.choice.choose
    desk.core.choice.choose = lambda ready, now, most=None: _priced(desk, usual(ready, now))  # type: ignore[method-assign]
    desk.round()
    desk.up("a", offer_of(desk))
    [verdict] = desk.round()
    assert verdict.source == source
    assert (verdict.least_odds < ALL) == (source is not None)


def _priced(desk: Desk, chosen: Any) -> Any:
    """The last round's tokens were dear."""
    desk.core.choice._least_value = 0.5  # type: ignore[attr-defined]
    return chosen


def test_a_draft_has_no_source() -> None:
    desk = Desk(selection="odds")
    desk.hello(capabilities=("odds", "offers"))
    desk.open()
    desk.round()
    desk.draft()
    [verdict] = desk.round()
    assert (verdict.num_verified > 0, verdict.source) == (True, None)


def test_the_papers_rounds_make_no_use_of_offers() -> None:
    desk = Desk(selection="none")
    desk.hello(capabilities=NEW)
    desk.open(max_draft=0)
    desk.round()
    desk.up("a", offer_of(desk))
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.source, verdict.least_odds) == (0, None, ALL)


# -- what is learned ---------------------------------------------------------------------------------------------------


def test_offers_count_by_source_and_not_for_the_acceptance_rate(desk: Desk) -> None:
    client = desk.session().client
    before = client.acceptance.value
    desk.up("a", offer_of(desk))
    desk.round()
    assert client.acceptance.value == before
    for counts in (desk.core.counts.drafted_by, client.num_drafted_by):
        assert dict(counts) == {"ngram": 4}
    assert dict(desk.core.counts.accepted_by) == dict(client.num_accepted_by) == {"ngram": 4}
    assert sum(client.calibration("ngram").tries) == pytest.approx(4, rel=0.01)


def test_nobody_hides_wrong_drafts_behind_an_index() -> None:
    """Its word for what an index drafted keeps no draft from counting for its acceptance rate."""
    rates = []
    for num_ngram in (0, 1, 99):
        desk = Desk(selection="odds")
        desk.hello(capabilities=("odds", "offers"))
        desk.open()
        desk.round()
        honest = desk.honest_draft()
        desk.draft(alpha=0.0, odds=bytes(len(honest.tokens)), num_ngram=num_ngram)
        desk.round()
        rates.append(desk.session().client.acceptance.value)
    assert rates[0] == rates[1] == rates[2] < 0.7


def test_what_is_drafted_beyond_a_texts_end_makes_no_claim_believed() -> None:
    """The text is over at its third token; the target would have agreed with the drafted ones after it, too."""
    desk = Desk(selection="odds")
    desk.hello(capabilities=("odds", "offers"))
    right = target_text()
    assert right[2] not in right[:2]
    desk.open(stop_ids=(right[2],))
    desk.round()
    client = desk.session().client
    desk.draft(odds=bytes(len(desk.honest_draft().tokens)))
    [verdict] = desk.round()
    assert (verdict.finish_reason, len(verdict.tokens)) == ("stop", 1)
    assert verdict.num_accepted > 3
    assert sum(client.calibration("model").hits) == pytest.approx(2.0, rel=0.01)
    assert sum(client.calibration("model").tries) == pytest.approx(2.0, rel=0.01)


# -- waiting for an offer ----------------------------------------------------------------------------------------------


def waiting_desk() -> Desk:
    """A session whose draft node answers in 10 ms, beside rounds of 100 ms."""
    desk = Desk(selection="odds", self_draft=False)
    desk.hello(capabilities=NEW)
    desk.open(max_tokens=40)
    for _ in range(4):
        desk.round(0.1)
        desk.now += 0.01
        desk.up("a", offer_of(desk, num=1))
    desk.round(0.1)
    return desk


def test_a_round_waits_for_the_offer_of_a_near_draft_node() -> None:
    desk = waiting_desk()
    assert desk.core.plan(desk.now) is None
    desk.now += 0.01
    desk.up("a", offer_of(desk))
    planned = desk.core.plan(desk.now)
    assert planned is not None
    assert planned.num_drafted == 4


def test_an_answer_without_an_offer_ends_the_wait() -> None:
    desk = waiting_desk()
    assert desk.core.plan(desk.now) is None
    session = desk.session()
    desk.up("a", Ack(session.session_id, session.epoch, len(session.tokens)))
    assert desk.core.plan(desk.now) is not None


def test_an_offer_that_does_not_come_holds_up_a_share_of_a_round() -> None:
    desk = waiting_desk()
    started = desk.now
    while desk.core.plan(desk.now) is None:
        desk.now += 0.001
    assert desk.now - started <= OFFER_SHARE * desk.core.round_s


def test_offers_that_bring_nothing_are_soon_not_waited_for() -> None:
    desk = waiting_desk()
    client = desk.session().client
    for _ in range(100):
        client.answer_gain.observe(0, in_time=True)
    assert desk.core.plan(desk.now) is not None


def test_one_of_some_rounds_waits_for_no_offer() -> None:
    desk = waiting_desk()
    ready = [desk.session()]
    waits = [bool(desk.core.choice.hopes(ready, number)) for number in range(2 * UNWAITED)]
    assert waits.count(False) == 2


def test_fewer_rounds_wait_for_no_offer_once_it_is_known_what_waiting_brings() -> None:
    desk = waiting_desk()
    client = desk.session().client
    for _ in range(30):
        client.answer_gain.observe(5, in_time=True)
        client.answer_gain.observe(0, in_time=False)
    waits = [bool(desk.core.choice.hopes([desk.session()], number)) for number in range(2 * SELDOM_UNWAITED)]
    assert waits.count(False) == 2
