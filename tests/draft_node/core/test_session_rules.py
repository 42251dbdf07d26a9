"""Texts that ask for more than every verify node serves: it is sent to those that announce it, and never left out."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Fail, Request, Send
from draft_node.core.session import Session
from goodspeed.wire.messages import Constraint, LogitRules, OpenSession, Redirect, Sampling, Verdict

ID = b"0123456789abcdef"
RULES = LogitRules(presence_penalty=0.5)
FORM = Constraint("regex", "[ab]+")
REQUEST = Request(ID, (1, 2, 3), Sampling(seed=5), max_tokens=20)


def opened(session: Session, capabilities: tuple[str, ...]) -> OpenSession:
    message = next(
        action.message for action in session.connect(1.0, "t", 100, capabilities) if isinstance(action, Send)
    )
    assert isinstance(message, OpenSession)
    return message


@pytest.mark.parametrize(("name", "value"), [("logit_rules", RULES), ("constraint", FORM)])
def test_it_is_sent_to_a_verify_node_that_knows_it(name, value):
    assert getattr(opened(Session(replace(REQUEST, **{name: value})), (name,)), name) == value


@pytest.mark.parametrize(("name", "value"), [("logit_rules", RULES), ("constraint", FORM)])
def test_where_it_is_not_known_the_text_ends_by_name_and_is_never_opened_without(name, value):
    session = Session(replace(REQUEST, **{name: value}))
    [fail] = session.connect(1.0, "t", 100, ("slo", "fleet"))
    assert isinstance(fail, Fail)
    assert (fail.code, session.done) == ("unsupported", True)


def test_a_text_under_way_does_not_go_on_at_a_replica_that_would_write_it_otherwise():
    session = Session(replace(REQUEST, logit_rules=RULES))
    opened(session, ("logit_rules",))
    session.receive(Verdict(ID, 1, None, 3, (7,), 0, 0, 0), 2.0)
    session.disconnect()
    [fail] = session.connect(3.0, "t", 100, ())
    assert isinstance(fail, Fail)
    assert "penalties" in fail.what


def test_nor_where_it_is_sent():
    session = Session(replace(REQUEST, logit_rules=RULES))
    opened(session, ("logit_rules", "fleet"))
    assert session.redirected(Redirect(ID, 1, "tcp://10.0.0.2:5555", "", 1, "load"))
    [fail] = session.connect(3.0, "t", 100, ("fleet",))
    assert isinstance(fail, Fail)
    assert fail.code == "unsupported"


def test_what_asks_for_nothing_is_opened_everywhere():
    assert opened(Session(REQUEST), ()).logit_rules is None
