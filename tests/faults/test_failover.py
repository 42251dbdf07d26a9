"""Two verify nodes of one target: one is killed, one freezes, one stops, and every text goes on at the other."""

import pytest

from tests.faults.texts import ask, check, mixed
from tests.nodes import DraftNode, VerifyNode

pytestmark = pytest.mark.alone

NUM_TOKENS = 400


@pytest.mark.essential
def test_texts_go_on_at_the_other_verify_node_when_theirs_is_killed() -> None:
    wanted = mixed(NUM_TOKENS)[:4]
    with (
        VerifyNode() as first,
        VerifyNode() as second,
        DraftNode(first.endpoint, "--verify", second.endpoint) as draft,
    ):
        draft.wait_until_ready()
        streams = [ask(draft.url, each) for each in wanted]
        for stream in streams:
            stream.wait_for(5)
        first.kill()
        for each, stream in zip(wanted, streams, strict=True):
            check(each, stream.finish())
        [line] = [line for line in draft.log if "another verify node is tried" in line.text]
        assert second.endpoint in line.text
        late = ask(draft.url, wanted[0])
        check(wanted[0], late.finish())


@pytest.mark.slow_faults
def test_texts_go_on_at_the_other_verify_node_when_theirs_falls_silent() -> None:
    wanted = mixed(NUM_TOKENS)[:4]
    with (
        VerifyNode() as first,
        VerifyNode() as second,
        DraftNode(first.endpoint, "--verify", second.endpoint) as draft,
    ):
        draft.wait_until_ready()
        streams = [ask(draft.url, each) for each in wanted]
        for stream in streams:
            stream.wait_for(5)
        first.stop()
        for each, stream in zip(wanted, streams, strict=True):
            check(each, stream.finish())
        first.go_on()
