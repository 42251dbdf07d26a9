"""A draft node tells the verify node a text's objectives, in durations, and is told of promises."""

from msgspec.structs import replace

from draft_node.core.actions import Fail
from draft_node.core.generation import Generation
from draft_node.core.session import Session
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Sampling, Slo, Verdict
from tests.draft_node.core.scripted import opened
from tests.fakes import make_welcome

ID = b"0123456789abcdef"
CHAT = Objectives(0.5, 0.05, "chat")
REQUEST = Generation(ID, (1, 2, 3), Sampling(seed=5), max_tokens=20, slo=CHAT, asked_at=10.0)


def test_the_verify_node_is_told_them_and_how_long_the_text_has_waited():
    assert opened(Session(REQUEST), 10.25).slo == Slo(CHAT, 0.25)


def test_opened_again_it_tells_for_how_long_the_first_token_has_been_there():
    session = Session(REQUEST)
    opened(session, 10.0)
    session.receive(Verdict(ID, 1, 3, (7,), 0, 0), 11.0)
    session.receive(Verdict(ID, 1, 4, (8,), 0, 0), 11.5)
    session.disconnect()
    again = opened(session, 13.0)
    assert (again.slo, again.committed) == (Slo(CHAT, 3.0, since_first_s=2.0), (7, 8))


# -- promises ----------------------------------------------------------------------------------------------------------


def test_where_nothing_is_ever_promised_a_text_that_insists_ends_at_once():
    session = Session(replace(REQUEST, otherwise="refuse"))
    [fail] = session.connect(10.0, make_welcome(promises=False))
    assert isinstance(fail, Fail)
    assert fail.code == "not_promised"
    assert session.done


def test_a_text_that_is_under_way_goes_on_at_a_verify_node_that_promises_nothing():
    session = Session(replace(REQUEST, otherwise="refuse"))
    opened(session, 10.0)
    session.receive(Verdict(ID, 1, 3, (7,), 0, 0), 11.0)
    session.disconnect()
    assert opened(session, 12.0, promises=False).committed == (7,)


def test_it_knows_whether_it_is_promised_until_it_is_opened_again():
    session = Session(REQUEST)
    opened(session, 10.0)
    told = Verdict(ID, 1, 3, (7,), 0, 0, promised=False)
    assert session.promised is None
    session.receive(replace(told, epoch=2, promised=True), 10.1)
    assert session.promised is None, "of another epoch"
    session.receive(told, 10.1)
    assert session.promised is False
    session.receive(replace(told, base_len=4, promised=True), 10.2)
    assert session.promised is True
    session.receive(told, 10.3)
    assert session.promised is True, "a verdict that comes again"
    session.disconnect()
    opened(session, 11.0)
    assert session.promised is None, "another verify node may keep no book of it"
