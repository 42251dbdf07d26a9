"""Both daemons write to standard error as real processes, and go on or end when nobody can be told."""

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.harness.forks import Fork
from tests.nodes import ENVIRONMENT, ROOT, VerifyNode

pytestmark = pytest.mark.nodes

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full on this system")


@pytest.fixture
def full() -> Iterator[int]:
    with FULL.open("w") as device:
        yield device.fileno()


def line_with(process: Fork, text: str) -> str:
    """The next line of its standard error that has this text."""
    for line in process.stderr:
        if text in line:
            return line.rstrip("\n")
    raise AssertionError(f"{text!r} did not come; it ended with status {process.wait()}")


def ask(
    endpoint: str, *words: str, stdout: int | None = None, stderr: int | None = None
) -> tuple[int | None, str, str]:
    """A draft node that writes one text: exit status, standard output, standard error."""
    asked = ("--name", "ana", "--max-tokens", "4", "--json")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
        prompts.write('{"prompt": "The river", "seed": 1}')
        prompts.flush()
        words = ("--model", "tiny-draft-s", "--verify", endpoint, "--prompts", prompts.name, *asked, *words)
        with Fork("draft_node", *words, stdout=stdout, stderr=stderr) as process:
            out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_both_daemons_tell_a_person_what_they_do() -> None:
    words = ("--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0")
    with Fork("verify_node", *words) as verify:
        assert verify.stderr.readline() == "goodspeed-verify: loading tiny-target ...\n"
        endpoint = line_with(verify, "goodspeed-verify: listening at tcp://").rpartition(" ")[2]
        assert re.search(r"the page is at http://127\.0\.0\.1:\d+$", line_with(verify, "page"))
        status, out, err = ask(endpoint)
        assert [line for line in err.splitlines() if "waiting for the verify node" not in line] == [
            "goodspeed-draft: loading tiny-draft-s ...",
            f"goodspeed-draft: connected to {endpoint}",
        ]
        assert (status, bool(out)) == (0, True)
        assert line_with(verify, "ana connected") == "goodspeed-verify: draft node ana connected (tiny-draft-s)"
        assert line_with(verify, "ana left") == "goodspeed-verify: draft node ana left"
        verify.send_signal(signal.SIGTERM)
        assert "stopping" in line_with(verify, "goodspeed-verify: ")
        assert verify.wait(timeout=60) == 0
        assert verify.stdout.read() == ""  # that is for results


@needs_full
def test_events_on_a_full_disk_are_one_line_and_status_74(verify: VerifyNode, full: int) -> None:
    status, _, err = ask(verify.endpoint, "--log-level=error", stdout=full)
    assert status == 74
    why = "No space left on device"
    assert err == f"goodspeed-draft: standard output cannot be written to ({why}); the output is lost\n"


@needs_full
def test_nodes_whose_log_finds_no_room_go_on(full: int) -> None:
    """The verify node, which says what it profiled, and the draft node, at whatever level they log."""
    words = ("--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", "--json", "--log-level", "debug")
    with Fork("verify_node", *words, stderr=full) as process:
        ready = json.loads(process.stdout.readline())
        status, out, _ = ask(ready["endpoint"], "--log-level", "debug", stderr=full)
        assert (status, num_tokens(out)) == (0, 4)
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read().splitlines()
        assert process.wait(timeout=60) == 0
    assert json.loads(rest[-1])["event"] == "stopped"


def test_a_node_without_standard_error_goes_on(verify: VerifyNode, tmp_path: Path) -> None:
    """In an interpreter of its own, which finds the descriptor closed."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "The river"}')
    words = ("--model", "tiny-draft-s", "--verify", verify.endpoint, "--prompts", str(prompts), "--max-tokens", "4")
    command = ["sh", "-c", 'exec "$0" -m "$@" 2>&-', sys.executable, "draft_node", *words, "--json"]
    ended = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, num_tokens(ended.stdout)) == (0, 4)


def num_tokens(out: str) -> int:
    """Tokens of the one text, by the last of the events; nothing but these is among the lines."""
    return len([json.loads(line) for line in out.splitlines()][-1]["prompts"][0]["token_ids"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_before_the_end(number: signal.Signals, tmp_path: Path, verify: VerifyNode) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text, "seed": 1}) + "\n" for text in ("one", "two", "three")))
    words = ("--model", "tiny-draft-s", "--verify", verify.endpoint, "--prompts", str(prompts), "--max-sessions", "1")
    with Fork("draft_node", *words, "--max-tokens", "2000", "--json") as process:
        while json.loads(process.stdout.readline())["event"] != "tokens":
            pass
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    loading, *_, connected, last = err.splitlines()  # between them it may say that it waits
    assert loading == "goodspeed-draft: loading tiny-draft-s ..."
    assert connected == f"goodspeed-draft: connected to {verify.endpoint}"
    assert last == "goodspeed-draft: interrupted; unfinished prompts: 3"
    result = json.loads(out.splitlines()[-1])
    assert [row["error"]["code"] for row in result["prompts"]] == ["interrupted"] * 3
    assert [row["prompt"] for row in result["prompts"]] == ["one", "two", "three"]
