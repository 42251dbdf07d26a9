"""The verify node as a loop under a policy of a user's own, and what it counts of what draft nodes send."""

from collections.abc import Sequence

import pytest

from goodspeed.fair.policies import ClientState, OwnPolicy
from goodspeed.wire.messages import Ack, Draft, Verdict
from tests.fakes import alone, make_open, request_of, session_id
from tests.verify_node.loops import Loop, ask, served
from tests.waiting import until


class Greedy:
    """Gives everybody one token more than it may have."""

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        return [client.max_length + 1 for client in clients]


@served
async def test_a_text_is_written_to_its_end_under_a_policy_that_is_always_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text: list[int] = []
    async with Loop(policy=OwnPolicy("mine:Greedy", Greedy)) as loop:
        channel = await loop.let_in()
        answer = await ask(channel, make_open(1, max_tokens=8))
        while len(text) < 8:
            assert isinstance(answer, Verdict)
            text += answer.tokens
            assert answer.may_draft == 0
            answer = await ask(channel, Ack(session_id(1), 1, 3 + len(text)))
        assert not loop.serving.done()
    assert text == list(alone(request_of(make_open(1, max_tokens=8))))
    told = "the policy mine:Greedy returned the length 7 for client 0; it must lie within 0 and its max_length, 6"
    assert told in caplog.text


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
