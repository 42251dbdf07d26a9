"""A session expects a new draft of its draft model where nothing is left of the last, as soon as usual."""

from math import inf

import pytest

from goodspeed.wire import probabilities
from goodspeed.wire.fields import NodeSource
from tests.verify_node.phases import a_draft, make_session, tell
from verify_node.clients.client import ANSWER_SMOOTHING, MEMORY, MOST_LATER, DraftGain
from verify_node.session.draft_timer import LATER
from verify_node.session.session import Session

NOW = 100.0


def told(*, is_behind: bool = False, **changes):
    """A session whose newest verdict has just gone out, and has left no draft. is_behind: its draft model has not
    prefilled the prompt."""
    session = make_session(max_tokens=1000, **changes)
    if not is_behind:
        session.drafts.timer.answered(NOW)
    session.commit((7,))
    tell(session, NOW)
    return session


def verdict(session: Session, now: float, *, token: int = 9, may_draft: int = 8) -> None:
    """The next one goes out, with this token."""
    session.commit((token,))
    tell(session, now, may_draft=may_draft)


def draft(session: Session, now: float, source: NodeSource = "model", base: int = 0) -> None:
    base_len = len(session.tokens) + base
    session.take_draft(a_draft(base_len=base_len, probabilities=probabilities.encode((0.9, 0.9)), source=source), now)


@pytest.fixture
def quick() -> Session:
    """Its draft model has drafted within 4 ms."""
    session: Session = told()
    draft(session, NOW + 0.004)
    return session


def test_nobody_is_waited_for_who_never_drafted():
    session = told()
    session.acknowledge(len(session.tokens), NOW, 0.0)
    assert not session.expects_answer
    assert not session.expects_model
    assert session.model_drafted is False, "that it did not is known all the same"


def test_a_model_is_waited_for_until_the_time_that_it_takes(quick):
    assert quick.client.answer_s == pytest.approx(0.004)
    assert not quick.expects_model, "it is there"
    verdict(quick, NOW + 1.0)
    quick.acknowledge(len(quick.tokens), NOW + 1.001, 0.0)
    assert (quick.expects_answer, quick.expects_model) == (False, True), "an Ack is not what it hopes for"
    assert quick.drafts.timer.due_at == pytest.approx(NOW + 1.0 + LATER * 0.004)
    assert quick.model_drafted is False
    draft(quick, NOW + 1.004)
    assert (quick.expects_model, quick.model_drafted) == (False, True)


def test_a_draft_after_much_prefill_says_nothing_of_the_usual_time():
    """Else rounds would not wait for a quick model until its first slow answers are forgotten."""
    session = told(is_behind=True)
    draft(session, NOW + 0.2)
    assert not session.client.answer_s, "it prefilled the prompt"
    verdict(session, NOW + 1.0)
    draft(session, NOW + 1.004)
    assert session.client.answer_s == pytest.approx(0.004)
    for number, may_draft in enumerate((0, 0, 8), 2):
        verdict(session, NOW + number, may_draft=may_draft)
    assert session.drafts.timer.due_at == inf, "it has to prefill what it was not to draft for"
    verdict(session, NOW + 4.2)
    draft(session, NOW + 4.3)
    assert session.client.answer_s == pytest.approx(0.004)


def test_nothing_is_called_for_while_the_last_draft_goes_on(quick):
    verdict(quick, NOW + 1.0, token=4)
    assert (quick.expects_model, quick.model_drafted) == (False, None)


def test_nothing_is_called_for_where_nothing_may_be_drafted(quick):
    """As while another way of drafting is tried: then a silence says nothing of the model, either."""
    for number in range(1, 20):
        verdict(quick, NOW + number, may_draft=0)
        assert (quick.expects_model, quick.model_drafted) == (False, None)
    assert quick.client.answer_s == pytest.approx(0.004)


def test_an_index_is_hoped_for_at_its_own_time():
    session = told()
    draft(session, NOW + 0.5)
    verdict(session, NOW + 1.0)
    assert not session.expects_answer, "it has none, as far as is known"
    draft(session, NOW + 1.5, source="ngram")
    verdict(session, NOW + 1.0)
    assert session.expects_answer
    assert session.answer_due_at == pytest.approx(NOW + 1.0 + session.round_trip_s)


def test_a_model_that_is_silent_is_expected_later_and_later(quick):
    """As one that rests, or is busy with others: else every round would be held up for nothing."""
    seen = []
    for number in range(1, 20):
        verdict(quick, NOW + number)
        seen.append(quick.client.answer_s)
    later = 1.0 + ANSWER_SMOOTHING * (MOST_LATER - 1.0)
    num_doubled = [0, 1, 2, 2, *[3] * 4, *[4] * 8, *[5] * 3]  # the silence began with the first of these verdicts
    assert seen == pytest.approx([0.004 * later**number for number in num_doubled])
    assert quick.drafts.timer.due_at < NOW + 19, "it has been called long ago, and is not waited for any more"


@pytest.mark.parametrize(("index_s", "is_silence"), [(0.001, False), (0.5, True)])
def test_a_draft_of_the_index_is_no_silence_of_the_model_unless_it_is_late(quick, index_s, is_silence):
    """The draft node sends the better of both drafts. A late one hides nothing: else every round could wait for it."""
    for number in range(1, 20):
        verdict(quick, NOW + number)
        draft(quick, NOW + number + index_s, source="ngram")
    assert quick.client.answer_s > 0.01 if is_silence else quick.client.answer_s == pytest.approx(0.004)


def test_a_draft_that_the_round_refuted_has_come_all_the_same():
    session = told()
    for number in range(1, 20):
        draft(session, NOW + number - 1 + 0.004)
        verdict(session, NOW + number)
    assert session.client.answer_s == pytest.approx(0.004)


def test_an_index_and_drafts_on_an_older_text_say_nothing_of_the_models_time():
    session = told()
    draft(session, NOW + 0.004, source="ngram")
    draft(session, NOW + 0.004, base=-1)
    assert session.client.answer_s == 0.0


def test_what_a_draft_brings_counts_in_two_rounds():
    session = told()
    gain = session.client.model_gain
    before = gain.tokens
    for _ in range(200):  # a draft brings a token at once, and one that is late brings it a round later
        session.drafts.timer.end_round(1, True)
        session.drafts.timer.end_round(0, None)
        session.drafts.timer.end_round(0, False)
        session.drafts.timer.end_round(1, None)
    assert before == pytest.approx(1.0)
    assert gain.tokens < 0.1


@pytest.mark.parametrize(
    ("num", "with_answer", "without", "brings"), [(0, 0, 0, 1.0), (100, 2, 2, 0.0), (400, 3, 1, 2.0), (100, 0, 3, 0.0)]
)
def test_a_draft_brings_what_is_accepted_beyond_what_goes_on_without(num, with_answer, without, brings):
    gain = DraftGain()
    for _ in range(num):
        gain.observe(with_answer, in_time=True)
        gain.observe(without, in_time=False)
    assert gain.tokens == pytest.approx(brings, abs=0.05)


def test_older_rounds_are_forgotten_and_what_few_had_without_a_draft_ends_no_hope() -> None:
    """Few rounds then waited for no draft, so none was in time, and none could show that waiting pays."""
    gain = DraftGain()
    for _ in range(1000):
        gain.observe(3, in_time=True)
    for _ in range(int(3 * MEMORY)):
        gain.observe(0, in_time=True)
    assert gain.tokens < 0.2
    gain = DraftGain()
    for _ in range(5):
        gain.observe(5, in_time=False)
    assert gain.tokens == 1.0
    for _ in range(8):
        gain.observe(2, in_time=True)
    assert gain.tokens == 0.0
