"""The verify node as a loop under a policy of a user's own, and what it counts of what draft nodes send."""

from goodspeed.wire.messages import Draft, Verdict
from tests.fakes import make_open, session_id
from tests.verify_node.loops import Loop, ask, served
from tests.waiting import until


@served
async def test_every_message_that_carries_drafted_tokens_counts_as_uplink() -> None:
    async with Loop() as loop:
        channel = await loop.let_in()
        assert isinstance(await ask(channel, make_open(1)), Verdict)
        assert loop.daemon.messages.uplink_bytes == 0  # nothing was drafted
        text = loop.core.sessions[session_id(1)].tokens
        await channel.send(Draft(session_id(1), 1, len(text), (1, 2), source="ngram"))
        await until(lambda: loop.daemon.messages.uplink_bytes > 0)
        first = loop.daemon.messages.uplink_bytes
        await channel.send(Draft(session_id(1), 1, len(text), (1,)))
        await until(lambda: loop.daemon.messages.uplink_bytes > first)
