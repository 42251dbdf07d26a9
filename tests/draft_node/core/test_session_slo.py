"""What a draft node tells the verify node of a text's objectives: durations, and only to one that knows them."""

from msgspec.structs import replace

from draft_node.core.actions import Proposed, Request, Send
from draft_node.core.local import Terms
from draft_node.core.session import Session
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import OpenSession, Sampling, Slo, Verdict

ID = b"0123456789abcdef"
CHAT = Objectives(0.5, 0.05, "chat")
REQUEST = Request(ID, (1, 2, 3), Sampling(seed=5), max_tokens=20, slo=CHAT, asked_at=10.0)


def opened(session: Session, now: float, capabilities: tuple[str, ...] = ("slo",)) -> OpenSession:
    [message] = [
        action.message
        for action in session.connect(now, capabilities=capabilities)
        if isinstance(action, Send) and isinstance(action.message, OpenSession)
    ]
    return message


def test_a_verify_node_that_knows_slos_is_told_them_and_how_long_the_text_has_waited():
    assert opened(Session(REQUEST), 10.25).slo == Slo(CHAT, 0.25)


def test_another_one_is_told_nothing():
    assert opened(Session(REQUEST), 10.25, ("odds", "offers")).slo is None


def test_a_text_without_objectives_says_nothing():
    assert opened(Session(replace(REQUEST, slo=None)), 10.25).slo is None


def test_opened_again_it_tells_for_how_long_the_first_token_has_been_there():
    session = Session(REQUEST)
    opened(session, 10.0)
    session.receive(Verdict(ID, 1, None, 3, (7,), 0, 0, 0), 11.0)
    session.receive(Verdict(ID, 1, None, 4, (8,), 0, 0, 0), 11.5)
    session.disconnect()
    again = opened(session, 13.0)
    assert (again.slo, again.committed) == (Slo(CHAT, 3.0, since_first_s=2.0), (7, 8))


def test_a_token_that_the_draft_model_wrote_alone_is_there_too():
    session = Session(REQUEST)
    session.fall_back(Terms("away", 100, None), 12.0)
    session.proposed(Proposed(ID, session.epoch, session.round, (7,)), 12.5)
    assert opened(session, 13.0).slo == Slo(CHAT, 3.0, since_first_s=0.5)
