"""The verify node remembers who left, and who was lost and is missed, in bounded memory."""

from goodspeed.wire.handshake import Leave
from tests.fakes import Desk
from verify_node.core.counts import MAX_VISITS, Diary


def test_a_client_that_says_goodbye_has_left_and_is_not_lost():
    desk = Desk("a")
    desk.now = 1.0
    assert desk.up("a", Leave()) == []
    desk.now = 100.0
    desk.core.tick(desk.now)
    assert [(entry.kind, entry.client) for entry in desk.core.diary.entries()] == [("left", "a"), ("joined", "a")]
    assert desk.core.diary.losses_since(0.0) == []


def test_who_was_lost_and_left_later_is_not_missed():
    diary = Diary()
    diary.visit("lost", "a", "", 1.0)
    assert [entry.at for entry in diary.losses_since(0.0)] == [1.0]
    diary.visit("joined", "a", "", 2.0)
    diary.visit("left", "a", "", 3.0)
    assert diary.losses_since(0.0) == []


def test_refusals_push_nobody_out():
    diary = Diary()
    diary.visit("lost", "a", "", 1.0)
    for number in range(2 * MAX_VISITS):
        diary.refused("b", f"code-{number}", 2.0 + number)
    assert [entry.client for entry in diary.losses_since(0.0)] == ["a"]
    assert diary.losses_since(2.0) == []
