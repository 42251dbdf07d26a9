"""A verify node redirects sessions, not too often, and tells its draft nodes of the other replicas."""

import pytest
from msgspec.structs import replace

from goodspeed.fleet.replicas import Load, Replica
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.handshake import Heartbeat, Leave
from goodspeed.wire.messages import Redirect, Verdict
from tests.fakes import Desk, make_hello
from verify_node.core.fleet import TOLD_S

IDLE = Load(0.0, target_fingerprint="", max_sessions=100, num_pages=100, free_pages=100, round_s=0.01)
SLOW = replace(IDLE, round_s=1.0)  # slower than one that has made no round yet
BUSY = replace(IDLE, num_sessions=90, round_s=5.0)


def replica(name, load=IDLE):
    return Replica(name, f"tcp://{name}:5555", None, load)


def know(desk, *others, own="own"):
    """Tells it of the others as they are now; returns who is told what."""
    told = (replica("own"), *others)
    table = [replace(one, load=one.load and replace(one.load, told_at=desk.now)) for one in told]
    return [(send.peer_id, send.message) for send in desk.core.fleet.know(own, table, desk.now)]


def make(*others, busy=False, **options):
    """A desk with a draft node `a`; busy: with a long round behind it."""
    desk = Desk("a", **options)
    if busy:
        desk.open("a", 100)
        desk.round(duration_s=2.0)
    know(desk, *others)
    return desk


def redirects(messages):
    return [one for one in messages if isinstance(one, Redirect)]


def farewell(desk):
    """Returns what it says when it is told to stop."""
    desk.core.drain()
    return [send.message for send in desk.core.farewell(desk.now)]


def test_alone_it_sends_nobody_anywhere_and_tells_nothing():
    """So does a node that the table does not name: it is that of another fleet."""
    desk = Desk(max_sessions=1)
    assert len(desk.up("a", make_hello("a"))) == 1
    assert know(desk) == [(b"a", Heartbeat(desk.core.welcome.boot_id, tuple(desk.core.fleet.news or ())[:1]))]
    desk.open("a", 1)
    assert [one.code for one in desk.open("a", 2)] == ["too_many_sessions"]
    assert know(desk, replica("b"), own="somebody") == [(b"a", Heartbeat(desk.core.welcome.boot_id, ()))]
    assert desk.core.fleet.is_alone


def test_draft_nodes_are_told_who_is_there_after_welcome_and_when_that_changes():
    desk = make(replica("b"))
    told = desk.up("c", make_hello("c"))[1]
    assert [one.endpoint for one in told.siblings] == ["tcp://own:5555", "tcp://b:5555"]
    assert {peer for peer, _ in know(desk, replica("b"), replica("new"))} == {b"a", b"c"}
    stopping = replica("b", replace(IDLE, is_draining=True))
    assert know(desk, stopping, replica("new"))[0][1].siblings[1].is_draining


def test_the_floor_of_best_effort_is_kept_from_promises_whether_it_is_used_or_not():
    desk = make()
    idle = desk.core.load(desk.now)
    assert (idle.free_pages, idle.promisable_pages) == (idle.num_pages, int(0.75 * idle.num_pages))
    desk.begin("a", 1)
    busy = desk.core.load(desk.now)
    assert busy.free_pages < idle.free_pages
    assert busy.promisable_pages == idle.promisable_pages


def test_the_nodes_own_work_and_changes_of_size_are_told_as_a_part_of_its_rounds():
    desk = make()
    cost, before = desk.core.rounds.cost, desk.core.load(desk.now)
    cost.observe_work(1.7, 1)
    cost.change_rows, cost.token_s = 4.0, 0.001
    told = desk.core.load(desk.now)
    assert told.fixed_s == pytest.approx(before.fixed_s + cost.work_s(0) + 0.004)
    assert told.session_s == pytest.approx(before.session_s + cost.work_s(1) - cost.work_s(0))
    assert told.round_s == 0.0


def test_how_much_there_is_to_do_is_told_now_and_then():
    desk = make(replica("b"))
    desk.now = TOLD_S - 0.1
    assert know(desk, replica("b", BUSY)) == []
    desk.now = TOLD_S
    assert know(desk, replica("b", BUSY))[0][1].siblings[1].expected_s > 5.0
    desk.now = 3 * TOLD_S
    assert know(desk, replica("b", BUSY)) == [], "nothing is new"


@pytest.mark.parametrize(("load", "busy"), [(SLOW, False), (BUSY, True), (None, True)], ids=["slow", "busy", "unknown"])
def test_a_new_text_stays_where_it_waits_no_longer(load, busy):
    assert redirects(make(replica("b", load), busy=busy).open()) == []


def test_a_new_text_goes_where_it_waits_less_and_one_that_is_under_way_stays():
    desk = make(replica("b"), busy=True)
    assert redirects(desk.open("a", 1, committed=(7,))) == []
    sent = redirects(desk.open("a", 2))
    assert [(one.endpoint, one.hops, one.reason) for one in sent] == [("tcp://b:5555", 1, "load")]


def test_a_full_replica_sends_on_what_is_under_way_too_and_refuses_where_nobody_has_room():
    desk = make(replica("b", SLOW), max_sessions=1)
    desk.open("a", 1)
    assert [one.reason for one in redirects(desk.open("a", 2, committed=(7,)))] == ["draining"]
    know(desk, replica("b", replace(IDLE, num_sessions=100)))
    assert [one.code for one in desk.open("a", 2)] == ["too_many_sessions"]


@pytest.mark.parametrize(("hops", "is_sent"), [(0, True), (MAX_HOPS - 1, True), (MAX_HOPS, False)])
def test_hops_end(hops, is_sent):
    sent = redirects(make(replica("b"), busy=True).open("a", 1, hops=hops))
    assert [one.hops for one in sent] == ([hops + 1] if is_sent else [])


def test_a_session_that_is_open_is_not_sent_on_when_its_message_comes_twice():
    desk = make(replica("b", SLOW))
    desk.open("a", 1)
    desk.round(duration_s=5.0)
    assert redirects(desk.open("a", 1)) == []
    assert redirects(desk.open("a", 2))


@pytest.mark.parametrize("change", [{"target_fingerprint": "another"}, {"is_draining": True}], ids=str)
def test_nobody_is_sent_to_another_target_nor_to_who_stops(change):
    desk = make(replica("b", replace(IDLE, **change)), busy=True)
    desk.core.register.welcome = replace(desk.core.welcome, target_fingerprint="own")
    assert redirects(desk.open()) == []


def test_not_all_go_to_the_same_one_before_it_tells_again():
    desk = make(replica("b", replace(IDLE, max_sessions=2)), replica("c", replace(IDLE, max_sessions=2)), busy=True)
    sent = [redirects(desk.open("a", number))[0].endpoint for number in range(1, 4)]
    assert set(sent) == {"tcp://b:5555", "tcp://c:5555"}


def test_a_replica_that_stops_sends_its_open_sessions_on_and_then_says_so():
    desk = make(replica("b", SLOW))
    desk.open("a", 1)
    said = farewell(desk)
    assert [(one.endpoint, one.reason) for one in redirects(said)] == [("tcp://b:5555", "draining")]
    assert said[-1].code == "draining"
    assert desk.core.counts.redirects["draining"] == 1


def test_a_session_that_got_tokens_here_has_all_its_hops_again():
    desk = make(replica("b"))
    desk.open("a", 1, hops=MAX_HOPS)
    desk.open("a", 2, hops=MAX_HOPS)
    assert any(isinstance(one, Verdict) for one in desk.round())
    desk.open("a", 3, hops=MAX_HOPS)
    sent = redirects(farewell(desk))
    assert {one.session_id[-1]: one.hops for one in sent} == {1: 1, 2: 1}, "the third has got none yet"


@pytest.mark.parametrize("load", [IDLE, None], ids=["idle", "of unknown load"])
def test_a_stopping_replica_sends_new_texts_on_and_refuses_them_where_it_is_alone(load):
    desk = make(replica("b", load))
    desk.core.drain()
    assert [one.reason for one in redirects(desk.open())] == ["draining"]
    assert desk.core.fleet.can_take_over(desk.now)
    alone = make()
    alone.core.drain()
    assert [one.code for one in alone.open()] == ["draining"]
    assert not alone.core.fleet.can_take_over(alone.now)
    assert not make(replica("b", replace(IDLE, is_draining=True))).core.fleet.can_take_over(alone.now)


def test_an_idle_replica_does_not_report_the_rounds_of_a_past_load() -> None:
    desk = Desk("a", self_draft=False)
    desk.open()
    desk.round(2.0)
    assert desk.core.load(desk.now).round_s > 0.0
    desk.up("a", Leave())
    assert desk.core.load(desk.now).round_s == 0.0
