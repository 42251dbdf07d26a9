"""A recorder knows the sessions that are open, and numbers all that ever opened."""

from goodspeed.serving.events import EventLog
from goodspeed.wire.channels import Received
from goodspeed.wire.messages import Close
from tests.fakes import Desk, make_open, session_id
from verify_node.watch.recorder import RoundRecorder


def test_closed_sessions_are_forgotten_and_numbers_go_on() -> None:
    desk, recorder = Desk("a"), RoundRecorder(EventLog(enabled=False))
    for number in range(1, 11):
        desk.open(number=number)
        recorder.heard(Received(b"a", make_open(number), 0), desk.core, desk.now)
        desk.up("a", Close(session_id(number), 1))
    assert [known.number for known in recorder._known.values()] == [9]
