"""The one verify node that runs as a process of its own, for all tests that need real processes.

It has drafts made however fast this machine is, and waits long for peers that send no heartbeats.
"""

from collections.abc import Iterator

import pytest

from tests.nodes import VerifyNode


@pytest.fixture(scope="session")
def verify() -> Iterator[VerifyNode]:
    """Runs one `goodspeed-verify` for all tests that need real processes."""
    with VerifyNode(heartbeat_s=20.0) as node:
        node.wait_for("ready")
        yield node
    assert node.events[-1]["event"] == "stopped"
