"""Two verify nodes of one target: one is killed, freezes or stops, and every text goes on at the other."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from goodspeed.fleet.replicas import Replica
from goodspeed.fleet.table import Table
from tests.faults.texts import ask, begin, check_all, mixed
from tests.fleet.test_table import write
from tests.nodes import DraftNode, VerifyNode

pytestmark = pytest.mark.alone

NUM_TOKENS = 250


@pytest.mark.slow_faults
@pytest.mark.parametrize("fault", [VerifyNode.kill, VerifyNode.stop], ids=["killed", "silent"])
def test_texts_go_on_at_the_other_verify_node(fault: Callable[[VerifyNode], None]) -> None:
    wanted = mixed(NUM_TOKENS)[:4]
    with VerifyNode() as first, VerifyNode() as second, DraftNode(first.endpoint, "--verify", second.endpoint) as draft:
        draft.wait_until_ready()
        streams = begin(draft.url, wanted)
        fault(first)
        check_all(streams)
        if not first.is_running:
            [line] = [line for line in draft.log if "trying another verify node" in line.text]
            assert second.endpoint in line.text
        check_all([ask(draft.url, wanted[0])])


@pytest.mark.slow_faults
def test_texts_are_sent_to_the_other_verify_node_when_theirs_stops(tmp_path: Path) -> None:
    """The draft node knows the first one only, and learns of the other from it."""
    wanted, peers = mixed(NUM_TOKENS)[:4], tmp_path / "peers.json"
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        binds = [f"tcp://127.0.0.1:{held.getsockname()[1]}" for held in (one, other)]
    write(peers, Table((Replica("a", binds[0]), Replica("b", binds[1]))))
    with (
        VerifyNode("--peers", str(peers), "--bind", binds[0]) as first,
        VerifyNode("--peers", str(peers), "--bind", binds[1]),
        DraftNode(first.endpoint) as draft,
    ):
        draft.wait_until_ready()
        streams = begin(draft.url, wanted)
        assert first.terminate() == 0
        check_all(streams)
        draft.wait_for_metric("redirected_total", lambda num: num >= 1)
