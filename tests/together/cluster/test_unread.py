"""Both daemons beside readers who pause: pipes that are full from the first, and again at the end.

The node serves all the while. When it is read again, its lines are whole, and what was dropped is counted.
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from httpx2 import Client, TransportError

from experiments.harness.forks import Fork
from tests.nodes import DEADLINE_S, POLL_S, VerifyNode
from tests.pipes import Pipe
from tests.together.cluster.test_says import ask

pytestmark = pytest.mark.nodes

SOON_S, EVER_S = 0.1, 600.0
STREAMS = {"stdout": (1,), "stderr": (2,)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Unread:
    """A node whose pipes are full before it starts; those of `streams` are one pipe, and the others nobody wants."""

    def __init__(self, streams: tuple[int, ...], max_bytes: int, last_word_s: float, *words: str) -> None:
        """max_bytes: as many wait for a reader, a few; last_word_s: how long its end waits for one."""
        self.pipe = Pipe()
        self.pipe.fill()
        output = "goodspeed.serving.output"
        bounds = {f"{output}.MAX_WAITING": max_bytes, f"{output}.LAST_WORD_S": last_word_s}
        with Path(os.devnull).open("w") as nobody:
            ends = {1: nobody.fileno(), 2: nobody.fileno()} | dict.fromkeys(streams, self.pipe.writing)
            self.process = Fork(*words, stdout=ends[1], stderr=ends[2], settings=bounds)

    def __enter__(self) -> "Unread":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.pipe.close()

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)


def ready(client: Client, url: str, process: Fork) -> bool:
    """Waits until `/ready` says so."""
    for _ in range(int(DEADLINE_S / POLL_S)):
        with suppress(TransportError):
            if client.get(f"{url}/ready").status_code == 200:
                return True
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(POLL_S)
    return False


def is_whole(line: str, program: str) -> bool:
    """True if it is one line of the node, from its beginning to its end."""
    if line.startswith("{"):
        return "event" in json.loads(line)
    return line.startswith(f"{program}: ") and line.count(program) <= 2


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(timeout=DEADLINE_S) as client:
        yield client


def verify_words(endpoint: str, http: str) -> tuple[str, ...]:
    words = ("--model", "tiny-target", "--bind", endpoint, "--http", http)
    return ("verify_node", *words, "--json", "--record", "--log-level", "info")


@pytest.mark.parametrize("streams", STREAMS.values(), ids=STREAMS)
def test_a_verify_node_serves_whoever_reads_it(streams: tuple[int, ...], client: Client) -> None:
    endpoint, http = f"tcp://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    max_bytes = 2000 if 1 in streams else 100
    with Unread(streams, max_bytes, SOON_S, *verify_words(endpoint, http)) as node:
        assert ready(client, f"http://{http}", node.process)
        status, text, _ = ask(endpoint, "--max-tokens", "40")
        assert (status, bool(text)) == (0, True)
        assert ready(client, f"http://{http}", node.process)
        lines = node.pipe.read_until("dropped")
        assert all(is_whole(line, "goodspeed-verify") for line in lines)
        if 1 in streams:
            assert '"event":"ready"' in "".join(lines)
            assert json.loads(lines[-1])["num_lines"] > 0
        else:
            what, _, number = lines[-1].rpartition(": ")
            assert what == "goodspeed-verify: standard error was not read for a while; lines dropped"
            assert int(number) > 0
        node.pipe.fill()
        assert node.interrupt() == 0


@pytest.mark.parametrize("streams", STREAMS.values(), ids=STREAMS)
def test_a_draft_node_serves_whoever_reads_it(streams: tuple[int, ...], verify: VerifyNode, client: Client) -> None:
    http = f"127.0.0.1:{free_port()}"
    words = ("--model", "tiny-draft-s", "--verify", verify.endpoint, "--http", http, "--json", "--log-level", "info")
    with Unread(streams, 60, SOON_S, "draft_node", *words) as node:
        assert ready(client, f"http://{http}", node.process)
        asked = {"model": "goodspeed", "prompt": "The river", "max_tokens": 8}
        assert client.post(f"http://{http}/v1/completions", json=asked).status_code == 200
        lines = node.pipe.read_until("dropped: " if 2 in streams else '"connected"')
        assert all(is_whole(line, "goodspeed-draft") for line in lines)
        if 1 in streams:  # nothing of it may be dropped
            assert [json.loads(line)["event"] for line in lines if line.startswith("{")] == ["ready", "connected"]
        node.pipe.fill()
        assert node.interrupt() == 0


def test_the_last_word_comes_to_a_reader_who_comes_back(client: Client) -> None:
    endpoint, http = f"tcp://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with Unread((1, 2), 2000, EVER_S, *verify_words(endpoint, http)) as node:
        assert ready(client, f"http://{http}", node.process)
        assert ask(endpoint, "--max-tokens", "40")[0] == 0
        node.process.send_signal(signal.SIGINT)
        lines = node.pipe.read_to_the_end()
        assert node.process.wait(DEADLINE_S) == 0
    assert any('"event":"stopped"' in line for line in lines[-3:])
    assert any(line.startswith("goodspeed-verify: stopping") for line in lines)
    assert any('"dropped"' in line for line in lines)


def test_no_result_is_dropped(verify: VerifyNode, tmp_path: Path) -> None:
    """Prompts wait for whoever reads, and the last line waits for as long as it takes."""
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Word {number}", "seed": 1}) + "\n" for number in range(12)))
    words = ("--model", "tiny-draft-s", "--verify", verify.endpoint, "--prompts", str(file), "--max-tokens", "8")
    with Unread((1,), 2000, SOON_S, "draft_node", *words, "--json", "--max-sessions", "2") as node:
        lines = [json.loads(line) for line in node.pipe.read_to_the_end()]
        assert node.process.wait(DEADLINE_S) == 0
    assert sorted(line["index"] for line in lines if line.get("event") == "finish") == list(range(12))
    assert len(lines[-1]["prompts"]) == 12
    assert "dropped" not in {line.get("event") for line in lines}
