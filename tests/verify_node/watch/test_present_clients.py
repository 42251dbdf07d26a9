"""Who is shown: clients that are there, never more than a bounded number; and what the event of a round tells."""

from typing import Any

import pytest

from goodspeed.wire.messages import Close
from tests.fakes import Desk, make_hello, session_id
from verify_node.core.client_events import MAX_VISITS, ClientEvents
from verify_node.session.phase import Phase
from verify_node.watch.present_clients import MAX_SHOWN, present_clients, shown
from verify_node.watch.round_events import round_event
from verify_node.watch.status_lines import status_line


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
    verdicts: Any = desk.finish(planned)
    told: Any = round_event(planned, verdicts, desk.core.sessions)
    assert (told["number"], told["num_drafted"], len(told["sessions"])) == (1, 0, 1)
    assert told["may_draft"] == {session_id(1).hex(): desk.session().drafts.may_draft} == {session_id(1).hex(): 8}
    assert told["sessions"][0]["may_draft"] == 8


# -- who came and went: each visit once, a return as a return, in bounded memory ---------------------------------------


def said(events: ClientEvents) -> list[str]:
    return [line.text % line.values for line in map(status_line, events.take_news())]


def test_each_visit_is_told_once() -> None:
    events = ClientEvents()
    events.visit("joined", "ana", "tiny-draft-s", 1.0)
    events.refused("ana", "budget", 1.5)  # is counted elsewhere
    events.visit("joined", "ben", "tiny-draft-m", 2.0)
    assert said(events) == ["draft node ana connected (tiny-draft-s)", "draft node ben connected (tiny-draft-m)"]
    assert said(events) == []
    events.visit("left", "ben", "tiny-draft-m", 3.0)
    events.visit("lost", "ana", "m", 3.0)
    events.visit("barred", "", "too many messages", 4.0)
    nameless = "draft node (without a name) is barred: too many messages"
    assert said(events) == ["draft node ben left", "draft node ana is away", nameless]


def test_words_of_peers_are_fit_for_a_terminal_and_a_crowd_is_told_by_its_newest() -> None:
    events = ClientEvents()
    events.visit("joined", "ana", "x\u2028\x1b[2J" + "y" * 1000, 1.0)
    (line,) = said(events)
    assert line.isprintable()
    assert len(line) < 400
    events = ClientEvents()
    for number in range(3 * MAX_VISITS):
        events.visit("joined", f"other-{number}", "m", 0.0)
    told = said(events)
    assert (len(told), told[-1]) == (MAX_VISITS, f"draft node other-{3 * MAX_VISITS - 1} connected (m)")


def test_who_is_not_let_in_is_told_once_with_the_whole_reason() -> None:
    desk = Desk()
    for _ in range(3):
        desk.up("a", make_hello("ana", tokenizer="another"))
        desk.core.replies.turned_away("KEY", desk.now)
        desk.now += 1.0
    desk.open("x")  # without a Hello: that keeps nobody out
    assert said(desk.core.client_events) == [
        "draft node ana is refused (tokenizer): this draft node (--model fake-draft) has another tokenizer than the "
        "target ",
        "draft node (without a name) is refused (not_enrolled): no file in the --enrolled folder has its key KEY",
    ]
    desk.core.replies.turned_away("KEY", desk.now)
    assert said(desk.core.client_events) == []
    desk.core.replies.turned_away("ANOTHER", desk.now)
    [line] = said(desk.core.client_events)
    assert line.endswith(": no file in the --enrolled folder has its key ANOTHER")
