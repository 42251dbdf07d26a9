"""Texts with a constraint: at a verify node that serves those, and never opened without it elsewhere."""

from msgspec.structs import replace

from draft_node.core.actions import Fail, Request
from draft_node.core.session import Session
from goodspeed.wire.messages import Constraint, Sampling, Verdict
from tests.draft_node.core.scripted import opened

ID = b"0123456789abcdef"
CONSTRAINT = Constraint("regex", "[ab]+")
REQUEST = Request(ID, (1, 2, 3), Sampling(seed=5), max_tokens=20, constraint=CONSTRAINT)


def test_where_it_is_not_served_the_text_ends_by_name_and_is_never_opened_without() -> None:
    session = Session(REQUEST)
    [fail] = session.connect(1.0, "t", 100, constraints=False)
    assert isinstance(fail, Fail)
    assert (fail.code, session.done) == ("unsupported", True)


def test_a_text_under_way_does_not_go_on_at_a_replica_that_would_write_it_otherwise() -> None:
    session = Session(REQUEST)
    opened(session, 1.0, "t", 100)
    session.receive(Verdict(ID, 1, 3, (7,), 0, 0), 2.0)
    session.disconnect()
    [fail] = session.connect(3.0, "t", 100, constraints=False)
    assert isinstance(fail, Fail)
    assert "structured output" in fail.what


def test_what_asks_for_nothing_is_opened_everywhere() -> None:
    assert opened(Session(replace(REQUEST, constraint=None)), 1.0, "t", 100, constraints=False, promises=False)
