"""The verify node as a loop, with a recorder: what strangers send, and what is refused, is neither kept nor trusted."""

from goodspeed.serving.events import EventLog
from goodspeed.wire.channels import Received
from goodspeed.wire.messages import Close, Draft, Refusal, Verdict
from tests.fakes import Desk, make_open, session_id
from tests.verify_node.loops import Loop, ask, served
from tests.waiting import until
from verify_node.watch.recorder import NUM_GONE, RoundRecorder


@served
async def test_what_is_refused_is_not_recorded() -> None:
    recorder = RoundRecorder(EventLog(enabled=False))
    async with Loop(recorder, rounds="barrier") as loop:
        owner, stranger = await loop.let_in(), loop.connect(b"bbbbbbbb")
        assert isinstance(await ask(owner, make_open(1)), Verdict)
        assert loop.daemon.messages.uplink_bytes == 0  # nothing was drafted

        refused = await ask(stranger, make_open(1, epoch=2))
        assert refused.code == "hello_first"
        assert not loop.serving.done()

        session = loop.core.sessions[session_id(1)]
        for beyond in range(1, 11):
            answer = await ask(owner, Draft(session_id(1), 1, len(session.tokens) + beyond, (1,)))
            assert isinstance(answer, Refusal)
        assert recorder._known[session_id(1)].drafted_at is None
        await owner.send(Draft(session_id(1), 1, len(session.tokens), (1,)))
        await until(lambda: recorder._known[session_id(1)].drafted_at)
        assert loop.daemon.messages.uplink_bytes > 0


def test_closed_sessions_are_forgotten_and_no_number_is_given_twice() -> None:
    desk, log = Desk(), EventLog(enabled=False)
    recorder, written = RoundRecorder(log), list[int]()
    log.write = lambda _, line: written.append(line["number"])  # type: ignore[method-assign, assignment, misc]
    desk.hello("a")
    for number in range(3 * NUM_GONE):
        opened = make_open(number)
        desk.up("a", opened)
        recorder.heard(Received(b"a", opened, 0), desk.core, desk.now)
        desk.up("a", Close(opened.session_id, opened.epoch))
    assert len(recorder._known) <= NUM_GONE + 3
    assert written == [*range(3 * NUM_GONE)]
