"""The verify node remembers events of its clients, the newest first, bounded."""

from goodspeed.errors import MalformedMessage
from goodspeed.wire.handshake import Leave
from tests.fakes import Desk
from verify_node.core.counts import MAX_REFUSALS, MAX_VISITS, Diary


def told(desk):
    return [(entry.kind, entry.client, entry.num_times) for entry in desk.core.diary.entries()]


def test_a_client_that_falls_silent_is_lost_and_may_come_back():
    desk = Desk()
    desk.hello("a")
    desk.now = 3.0
    desk.hello("a")  # the same process again: it has been here all the time
    assert desk.core.peers[b"a"].since == 0.0
    desk.now = 100.0
    desk.core.tick(desk.now)
    desk.now = 101.0
    desk.hello("a")
    assert told(desk) == [("joined", "a", 1), ("lost", "a", 1), ("joined", "a", 1)]
    assert [entry.at for entry in desk.core.diary.entries()] == [101.0, 100.0, 0.0]
    assert desk.core.peers[b"a"].since == 101.0


def test_a_client_that_says_goodbye_has_left_and_is_not_lost():
    desk = Desk()
    desk.hello("a")
    desk.now = 1.0
    assert desk.up("a", Leave()) == []
    desk.now = 100.0
    desk.core.tick(desk.now)
    assert told(desk) == [("left", "a", 1), ("joined", "a", 1)]
    assert desk.core.diary.losses_since(0.0) == []


def test_who_was_lost_and_left_later_is_not_missed():
    diary = Diary()
    diary.visit("lost", "a", "", 1.0)
    assert [entry.at for entry in diary.losses_since(0.0)] == [1.0]
    diary.visit("joined", "a", "", 2.0)
    diary.visit("left", "a", "", 3.0)
    assert diary.losses_since(0.0) == []


def test_refusals_are_told_by_client_and_reason():
    desk = Desk()
    desk.open("a")  # before it said Hello
    desk.hello("a")
    desk.now = 1.0
    for _ in range(3):
        desk.core.reject(b"a", MalformedMessage("no message"), desk.now)
    desk.core.reject(b"stranger", MalformedMessage("no message"), 2.0)
    refused = [(entry.client, entry.what, entry.num_times) for entry in desk.core.diary.entries()][:2]
    assert refused == [("", "malformed", 1), ("a", "malformed", 3)]
    assert ("refused", "", 1) in told(desk)


def test_never_more_than_a_bounded_number_is_kept():
    diary = Diary()
    for number in range(2 * MAX_VISITS):
        diary.visit("joined", f"name-{number}", "", number)
        diary.refused(f"name-{number}", "stale_epoch", number)
    assert len(diary.entries()) == MAX_VISITS + MAX_REFUSALS
    assert diary.entries()[0].client == f"name-{2 * MAX_VISITS - 1}"


def test_refusals_push_nobody_out():
    diary = Diary()
    diary.visit("lost", "a", "", 1.0)
    for number in range(2 * MAX_VISITS):
        diary.refused("b", f"code-{number}", 2.0 + number)
    assert [entry.client for entry in diary.losses_since(0.0)] == ["a"]
    assert diary.losses_since(2.0) == []
