"""The verify node as a loop, with a recorder: what strangers send, and what is refused, is neither kept nor trusted."""

import asyncio
from typing import Any

from goodspeed.events import EventLog
from goodspeed.messages import DownMessage, Draft, Heartbeat, Refusal, UpMessage, Verdict, Welcome, digest
from goodspeed.transport import DraftChannel, MemoryNetwork
from tests.fakes import TellingTarget, make_core, make_hello, make_open, replace_message, session_id
from verify_node.daemon import VerifyDaemon
from verify_node.planner import Round
from verify_node.recorder import Recorder
from verify_node.target import RoundResult

A, B = b"aaaaaaaa", b"bbbbbbbb"


class FakeTarget:
    def __init__(self, target: TellingTarget) -> None:
        self._target = target

    def run(self, planned: Round) -> RoundResult:
        return RoundResult(self._target.run(planned), 0.0, 0.0)


async def ask(channel: DraftChannel, message: UpMessage) -> DownMessage:
    await channel.send(message)
    while isinstance(heard := await channel.receive(), Heartbeat):
        pass
    return heard


def test_what_is_refused_is_not_recorded() -> None:
    async def story() -> None:
        core, network = make_core(), MemoryNetwork()
        target: Any = FakeTarget(TellingTarget(core.pool, core.limits, core.context_len))
        recorder = Recorder(EventLog(enabled=False))
        daemon = VerifyDaemon(core, target, network.bind_verify(), EventLog(enabled=False), recorder)
        serving = asyncio.create_task(daemon.serve())
        owner, stranger = network.connect_draft(A), network.connect_draft(B)
        assert isinstance(await ask(owner, make_hello("a", boot_id=A)), Welcome)
        assert isinstance(await ask(owner, make_open(1)), Verdict)

        refused = await ask(stranger, make_open(1, epoch=2))
        assert isinstance(refused, Refusal)
        assert refused.code == "hello_first"
        assert not serving.done()

        session = core.sessions[session_id(1)]
        assert session.assigned
        for number in range(50, 60):
            answer = await ask(owner, _draft(session, round=number, base_digest=b"another!"))
            assert isinstance(answer, Refusal)
        assert recorder._known[session_id(1)].drafts == {}
        assert isinstance(await ask(owner, _draft(session, round=60)), Verdict)
        serving.cancel()
        await asyncio.wait([serving])

    asyncio.run(asyncio.wait_for(story(), 60))


def _draft(session: Any, **changes: Any) -> Any:
    draft = Draft(session.session_id, session.epoch, 0, len(session.tokens), digest(session.tokens), (1,))
    return replace_message(draft, **changes)
