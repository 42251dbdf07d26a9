"""The console says when the verify node comes, goes and returns, and now and then that it is awaited."""

import asyncio
from types import SimpleNamespace
from typing import Any

from draft_node.process.connection_status import START, WAIT, ConnectionStatus, tell
from goodspeed.serving.events import EventLog, Reporter

ENDPOINT = "tcp://127.0.0.1:5555"


def look(connection, away_s=None, trouble=None, *, target=("", ""), endpoint=ENDPOINT):
    """Returns what is said; "" for nothing. away_s: None: the verify node is there."""
    welcome = SimpleNamespace(target=target[0], target_fingerprint=target[1])
    link: Any = SimpleNamespace(connected=away_s is None, away_s=lambda _: away_s, welcome=welcome)
    said = connection.look(link, endpoint, 0.0, trouble)
    return said.text % said.values if said is not None else ""


def wait(connection: ConnectionStatus, from_s: float, to_s: float, trouble: str | None = None) -> list[str]:
    """Returns what is said in ten looks a second while the verify node has been away for so long."""
    said = [look(connection, tenth / 10, trouble) for tenth in range(int(from_s * 10), int(to_s * 10) + 1)]
    return list(filter(None, said))


def waiting(num_s: int, why: str = START) -> str:
    return f"waiting for the verify node at {ENDPOINT} (since {num_s} s); {why}"


def test_waiting_is_told_once_a_minute() -> None:
    assert wait(ConnectionStatus(ENDPOINT), 0.0, 130.0) == [waiting(5), waiting(65), waiting(125)]


def test_one_that_was_there_is_away_and_comes_back() -> None:
    connection = ConnectionStatus(ENDPOINT)
    assert wait(connection, 0.0, 4.9) == []
    assert look(connection) == f"connected to {ENDPOINT}"
    assert look(connection) == ""
    assert wait(connection, 0.0, 6.2) == [waiting(0, WAIT), waiting(5)]
    assert look(connection) == f"connected to {ENDPOINT} again after 6.2 s"
    assert look(connection, endpoint="tcp://c:1") == "connected to tcp://c:1"
    assert look(connection, 0.3) == f"waiting for the verify node at tcp://c:1 (since 0 s); {WAIT}"
    assert look(connection, 5.0) == waiting(5)  # all addresses of --verify


def test_why_it_is_not_there_is_told_when_it_changes() -> None:
    connection, refusal = ConnectionStatus(ENDPOINT), "this key is not enrolled"
    said = [waiting(num_s, f"it refuses this node: {refusal}") for num_s in (0, 60)]
    assert wait(connection, 0.0, 61.0, trouble=refusal) == said
    assert wait(connection, 119.0, 130.0, trouble="barred") == [waiting(119, "it refuses this node: barred")]


def test_the_verify_nodes_own_words_cannot_command_a_terminal() -> None:
    said = look(ConnectionStatus("tcp://there:5555"), 0.1, "no\x1b[2J\nroot: all is well")
    assert "refuses this node" in said
    assert said.isprintable()


def test_another_target_is_told_with_both_names() -> None:
    connection = ConnectionStatus(ENDPOINT)
    look(connection, target=("big", "1"))
    look(connection, 3.0)
    ends = "so texts of the old one end"
    back = look(connection, target=("other", "2"))
    assert back == f"connected to {ENDPOINT} again after 3.0 s; its target is other (it was big), {ends}"
    look(connection, 1.0)
    same = "it was other, of other weights or precision"
    assert look(connection, target=("other", "3")).endswith(f"; its target is other ({same}), {ends}")


async def test_it_ends_if_told_to_at_the_moment_of_connecting() -> None:
    link, links = SimpleNamespace(connected=False, away_s=lambda _: 0.1), SimpleNamespace(trouble=None)
    parts = {"core": SimpleNamespace(links=links), "link": link, "channel": SimpleNamespace(endpoint=ENDPOINT)}
    daemon: Any = SimpleNamespace(connected=asyncio.Event(), **parts)
    config: Any = SimpleNamespace(verify=[ENDPOINT], name="ana")
    telling = asyncio.create_task(tell(config, daemon, EventLog(enabled=False), Reporter("", quiet=True)))
    for _ in range(3):  # it begins, and so do the tasks that it begins
        await asyncio.sleep(0)
    daemon.connected.set()
    await asyncio.sleep(0)
    telling.cancel()
    await asyncio.wait([telling])
    assert telling.cancelled()
