"""The verify node as a loop, with a recorder: what strangers send, and what is refused, is neither kept nor trusted."""

import asyncio
from typing import Any

from goodspeed.command.events import EventLog
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import Draft, Refusal, Verdict, digest
from tests.fakes import make_hello, make_open, replace_message, session_id
from tests.verify_node.loops import Loop, ask
from verify_node.watch.recorder import RoundRecorder

A, B = b"aaaaaaaa", b"bbbbbbbb"


def test_what_is_refused_is_not_recorded() -> None:
    async def story() -> None:
        recorder = RoundRecorder(EventLog(enabled=False))
        async with Loop(recorder) as loop:
            owner, stranger = loop.connect(A), loop.connect(B)
            assert isinstance(await ask(owner, make_hello("a", boot_id=A)), Welcome)
            assert isinstance(await ask(owner, make_open(1)), Verdict)

            refused = await ask(stranger, make_open(1, epoch=2))
            assert isinstance(refused, Refusal)
            assert refused.code == "hello_first"
            assert not loop.serving.done()

            session = loop.core.sessions[session_id(1)]
            assert session.assigned
            for number in range(50, 60):
                answer = await ask(owner, _draft(session, round=number, base_digest=b"another!"))
                assert isinstance(answer, Refusal)
            assert recorder._known[session_id(1)].drafts == {}
            assert isinstance(await ask(owner, _draft(session, round=60)), Verdict)

    asyncio.run(asyncio.wait_for(story(), 60))


def _draft(session: Any, **changes: Any) -> Any:
    draft = Draft(session.session_id, session.epoch, 0, len(session.tokens), digest(session.tokens), (1,))
    return replace_message(draft, **changes)
