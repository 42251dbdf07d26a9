"""Who is shown: clients that are there, never more than a bounded number; and what the event of a round tells."""

import pytest

from goodspeed.wire.messages import Close
from tests.fakes import Desk, make_hello, session_id
from verify_node.session.phase import Phase
from verify_node.watch.present import MAX_SHOWN, present_clients, shown
from verify_node.watch.round_events import round_event


@pytest.fixture
def desk():
    return Desk()


def names(desk):
    return [one.client.name for one in shown(present_clients(desk.core))]


def test_names_from_the_network_are_bounded(desk):
    for number in range(MAX_SHOWN + 40):
        desk.hello(f"name-{number}", boot_id=number.to_bytes(8))
    desk.open("name-290", number=1)
    assert len(present_clients(desk.core)) == MAX_SHOWN + 40
    assert len(names(desk)) == MAX_SHOWN
    assert names(desk)[:2] == ["name-290", "name-0"]


def test_connections_of_one_process_are_one_client(desk):
    desk.hello("a")
    desk.up("b", make_hello("a"))
    [one] = present_clients(desk.core)
    assert len(one.peers) == 1


def test_what_may_be_drafted_is_summed_over_sessions_that_go_on(desk):
    desk.hello("a")
    for number in (1, 2):
        desk.open(number=number)
    desk.round()
    [one] = present_clients(desk.core)
    assert one.may_draft == sum(desk.session(number).drafts.may_draft for number in (1, 2)) > 0
    desk.session(1).phase = Phase.FINISHED
    assert one.may_draft == desk.session(2).drafts.may_draft


def test_running_are_the_sessions_of_the_newest_round(desk):
    desk.hello("a")
    desk.open(number=1)
    assert desk.core.rounds.num_running == 0
    desk.round()
    desk.open(number=2)
    assert desk.core.rounds.num_running == 1
    desk.up("a", Close(session_id(1), 1))
    assert desk.core.rounds.num_running == 0


def test_a_round_tells_its_sums_and_a_row_of_each_session():
    desk = Desk("a", rounds="barrier")
    desk.open()
    planned = desk.plan()
    told = round_event(planned, desk.finish(planned), desk.core.sessions)
    assert (told["number"], told["num_drafted"], len(told["sessions"])) == (1, 0, 1)
    assert told["may_draft"] == {session_id(1).hex(): desk.session().drafts.may_draft} == {session_id(1).hex(): 8}
    assert told["sessions"][0]["may_draft"] == 8
