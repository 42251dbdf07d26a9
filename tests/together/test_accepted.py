"""The draft node marks as accepted those tokens of a verdict that the verify node accepted."""

from collections.abc import Sequence

from draft_node.core.actions import Deliver
from draft_node.core.session import Session
from goodspeed.wire.messages import Ack, DownMessage, Verdict
from tests.fakes import Desk, alone, make_open, make_welcome, request_of


def verdicts(messages: Sequence[DownMessage]) -> list[Verdict]:
    return [message for message in messages if isinstance(message, Verdict)]


def test_the_accepted_tokens_before_a_stop_token_are_marked_where_the_verdict_before_was_lost():
    """The stop token ends the text and is not delivered; the lost verdict's tokens come before the accepted ones."""
    text = alone(request_of(make_open(3)))
    assert text[6] not in text[:6]
    opened = make_open(3, stop_ids=(text[6],))
    desk, session = Desk(), Session(request_of(opened))
    desk.hello()
    session.connect(0.0, make_welcome())
    desk.up("a", opened)
    [first] = verdicts(desk.round())
    session.receive(first, desk.now)
    for drafted in (text[1:3], text[1:6]):
        desk.draft(number=3, tokens=drafted, base_len=len(session.tokens))
        [lost] = verdicts(desk.round())
    assert (lost.tokens, lost.num_accepted, lost.finish_reason) == (text[4:6], 2, "stop")
    [again] = verdicts(desk.up("a", Ack(opened.session_id, 1, len(session.tokens))))
    delivered = next(action for action in session.receive(again, desk.now) if isinstance(action, Deliver))
    assert delivered == Deliver(text[1:6], (), (False, False, False, True, True))
