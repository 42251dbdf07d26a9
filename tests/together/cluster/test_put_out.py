"""A real verify node bars peers, and keeps little of what they send; a barred draft node knows what to do.

Messages without an end are said by hand: no library sends a message before it is whole.
"""

import socket
import time
from pathlib import Path

import pytest

from tests.nodes import VerifyNode
from tests.together.cluster.test_bad_peers import peer
from tests.waiting import until
from tests.wire.keys.test_nodes import expected, site
from verify_node.core import rate_limit

pytestmark = pytest.mark.alone

ENDLESS_BYTES = 300 << 20
BYTES_A_SECOND = 100 << 20
"""What is sent; as fast as loopback goes, all of it would be there before the node looks for the third time."""

MORE_BYTES = 200 << 20
"""A node may keep so much of that: what comes until it looks, and what the allocator does not give back."""


def resident_bytes(process_id: int) -> int:
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


def shake_hands(endpoint: str) -> socket.socket:
    """ZMTP 3.1 without encryption, as a DEALER; what the verify node says to it is not read."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=5)
    connection.sendall(b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32))
    ready = b"\x05READY" + b"\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"
    connection.sendall(bytes([4, len(ready)]) + ready)
    return connection


def test_a_message_without_an_end_is_not_kept(verify: VerifyNode) -> None:
    """Frames that promise another, of 64 KiB each; whoever is cut off connects again and goes on."""
    frame = b"\x03" + (1 << 16).to_bytes(8, "big") + bytes(1 << 16)
    before = resident_bytes(verify.process.pid)
    num_bytes = num_connections = most = 0
    connection: socket.socket | None = None
    started = time.monotonic()
    while num_bytes < ENDLESS_BYTES:
        time.sleep(max(0.0, num_bytes / BYTES_A_SECOND - (time.monotonic() - started)))
        if connection is None:
            connection = shake_hands(verify.endpoint)
            num_connections += 1
        try:
            connection.sendall(frame)
            num_bytes += len(frame)
        except OSError:  # a reset, or no room for long
            connection.close()
            connection = None
        if num_bytes % (1 << 20) < len(frame):
            most = max(most, resident_bytes(verify.process.pid))
    if connection is not None:
        connection.close()
    assert num_connections > 1
    assert most - before < MORE_BYTES
    with peer(verify) as honest:
        assert honest.refusal(b"\xc1").code == "malformed"


async def test_a_key_that_is_put_out_is_told_why_and_comes_back(tmp_path: Path) -> None:
    """Its connection is cut and the next ones are not taken; others write on; when it is over its text goes on."""
    async with site(tmp_path) as here:
        verify = here.start_verify()
        requests, nodes, texts = await here.two_write(verify)
        for _ in range(int(rate_limit.BARRED) + 1):
            nodes["a"].channel.transport.put([b"\xc1"])
        await until(lambda: nodes["a"].link.trouble)
        assert "(barred)" in str(nodes["a"].link.trouble)
        assert await texts["b"] == expected(requests["b"])
        assert {one.client.name for one in verify.core.peers.values()} == {"b"}
        await until(lambda: verify.channel.transport.num_cut)
        assert not texts["a"].done()
        assert "(barred)" in str(nodes["a"].link.trouble), "and not that its key is not enrolled"
        verify.core.rate_limiter.expire(float("inf"))
        assert await texts["a"] == expected(requests["a"])
        assert nodes["a"].link.trouble is None
