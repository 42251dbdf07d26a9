"""The verify node as a loop, with a recorder: what strangers send, and what is refused, is neither kept nor trusted."""

from goodspeed.serving.events import EventLog
from goodspeed.wire.messages import Draft, Refusal, Verdict
from tests.fakes import make_open, session_id
from tests.verify_node.loops import Loop, ask, served
from tests.waiting import until
from verify_node.watch.recorder import RoundRecorder


@served
async def test_what_is_refused_is_not_recorded() -> None:
    recorder = RoundRecorder(EventLog(enabled=False))
    async with Loop(recorder, rounds="barrier") as loop:
        owner, stranger = await loop.let_in(), loop.connect(b"bbbbbbbb")
        assert isinstance(await ask(owner, make_open(1)), Verdict)

        refused = await ask(stranger, make_open(1, epoch=2))
        assert isinstance(refused, Refusal)
        assert refused.code == "hello_first"
        assert not loop.serving.done()

        session = loop.core.sessions[session_id(1)]
        for beyond in range(1, 11):
            answer = await ask(owner, Draft(session_id(1), 1, len(session.tokens) + beyond, (1,)))
            assert isinstance(answer, Refusal)
        assert recorder._known[session_id(1)].drafted_at is None
        await owner.send(Draft(session_id(1), 1, len(session.tokens), (1,)))
        await until(lambda: recorder._known[session_id(1)].drafted_at)
