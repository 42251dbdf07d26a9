"""A session tells its user's salt, and keeps what it is told of its prompt."""

from msgspec.structs import replace

from draft_node.core.actions import Request
from draft_node.core.session import Session
from goodspeed.wire.messages import Sampling, Verdict
from tests.draft_node.core.scripted import opened

REQUEST = Request(bytes(16), (1, 2, 3), Sampling(), 20, cache_salt=b"alice")


def test_the_verify_node_is_sent_its_salt() -> None:
    assert opened(Session(REQUEST)).cache_salt == b"alice"


def test_the_first_verdict_tells_what_was_in_memory() -> None:
    session = Session(REQUEST)
    opened(session)
    verdict = Verdict(REQUEST.session_id, session.epoch, 3, (7,), 0, 0, num_cached=2)
    session.receive(verdict, 0.1)
    session.receive(replace(verdict, base_len=4, tokens=(8,), num_cached=3), 0.2)
    assert session.tokens == [1, 2, 3, 7, 8]
    assert session.statistics.num_cached == 2


def test_a_text_that_is_opened_again_keeps_what_it_was_told_first() -> None:
    session = Session(REQUEST)
    opened(session)
    session.receive(Verdict(REQUEST.session_id, session.epoch, 3, (7,), 0, 0, num_cached=0), 0.1)
    session.disconnect()
    opened(session)
    session.receive(Verdict(REQUEST.session_id, session.epoch, 4, (8,), 0, 0, num_cached=3), 0.2)
    assert (session.tokens[3:], session.statistics.num_cached) == ([7, 8], 0)
