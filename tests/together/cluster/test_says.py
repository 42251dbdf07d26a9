"""What both daemons say on standard error as real processes, and what becomes of them when nobody can be told."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nodes import ENVIRONMENT, VerifyNode

pytestmark = pytest.mark.nodes

ROOT = Path(__file__).parents[3]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full on this system")


def start(module: str, *words: str, redirected: str = "") -> "subprocess.Popen[str]":
    """A node as a shell starts it."""
    return subprocess.Popen(
        ["sh", "-c", f'exec "$0" -m "$@" {redirected}', sys.executable, module, *words],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line_with(process: "subprocess.Popen[str]", text: str) -> str:
    """The next line of its standard error that has this text."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line.rstrip("\n")
    raise AssertionError(f"{text!r} did not come; it ended with status {process.wait()}")


def ask(endpoint: str, *words: str, redirected: str = "") -> tuple[int, str, str]:
    """A draft node that writes one text: exit status, standard output, standard error."""
    words = ("--model", "tiny-draft-s", "--verify", endpoint, "--name", "ana", "--max-tokens", "4", *words)
    with start("draft_node", *words, redirected=redirected) as process:
        out, err = process.communicate("The river\n", timeout=120)
    return process.returncode, out, err


def test_both_daemons_tell_a_person_what_they_do() -> None:
    words = ("--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0")
    with start("verify_node", *words) as verify:
        assert verify.stderr is not None
        assert verify.stderr.readline() == "goodspeed-verify: loading tiny-target ...\n"
        endpoint = line_with(verify, "goodspeed-verify: listening at tcp://").rpartition(" ")[2]
        assert re.search(r"the window is at http://127\.0\.0\.1:\d+$", line_with(verify, "window"))
        status, out, err = ask(endpoint)
        assert err.splitlines() == [
            "goodspeed-draft: loading tiny-draft-s ...",
            f"goodspeed-draft: connected to {endpoint}",
        ]
        assert (status, bool(out)) == (0, True)
        assert line_with(verify, "ana connected") == "goodspeed-verify: draft node ana connected (tiny-draft-s)"
        assert line_with(verify, "ana left") == "goodspeed-verify: draft node ana left"
        verify.send_signal(signal.SIGTERM)
        assert "stopping" in line_with(verify, "goodspeed-verify: ")
        assert verify.wait(timeout=60) == 0
        assert verify.stdout is not None
        assert verify.stdout.read() == ""  # that is for results


def test_a_served_draft_node_tells_where_it_is_ready_and_that_it_drains(verify: VerifyNode) -> None:
    words = ("--model", "tiny-draft-s", "--verify", verify.endpoint, "--name", "ben", "--http", "127.0.0.1:0", "--json")
    with start("draft_node", *words) as process:
        assert re.search(r"ready at http://127\.0\.0\.1:\d+$", line_with(process, "ready at"))
        process.send_signal(signal.SIGTERM)
        assert line_with(process, "stopping") == "goodspeed-draft: stopping"
        assert process.wait(timeout=60) == 0


def test_who_wants_it_quiet_hears_errors_only(verify: VerifyNode) -> None:
    assert ask(verify.endpoint, "--quiet")[2] == ""


@needs_full
def test_events_on_a_full_disk_are_one_line_and_status_74(verify: VerifyNode) -> None:
    status, _, err = ask(verify.endpoint, "--json", "--quiet", redirected=">/dev/full")
    assert status == 74
    why = "No space left on device"
    assert err == f"goodspeed-draft: standard output cannot be written to ({why}); what was to be printed is lost\n"


@needs_full
def test_a_verify_node_whose_events_find_no_room_says_so() -> None:
    words = ("--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", "--json", "--quiet")
    with start("verify_node", *words, redirected=">/dev/full") as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 74
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("redirected", [pytest.param("2>/dev/full", marks=needs_full), "2>&-"])
def test_a_node_without_a_log_goes_on(redirected: str, verify: VerifyNode) -> None:
    """The verify node, which says what it profiled, and the draft node, at whatever level they log."""
    words = ("--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", "--json", "--log-level", "debug")
    with start("verify_node", *words, redirected=redirected) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        status, out, _ = ask(ready["endpoint"], "--json", "--log-level", "debug", redirected=redirected)
        assert status == 0
        events = [json.loads(line) for line in out.splitlines()]  # nothing of the log is among them
        assert len(events[-1]["prompts"][0]["token_ids"]) == 4
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read().splitlines()
        assert process.wait(timeout=60) == 0
    assert json.loads(rest[-1])["event"] == "stopped"


def test_an_empty_standard_input_ends_as_an_empty_file_does(tmp_path: Path, verify: VerifyNode) -> None:
    words = ("--model", "tiny-draft-s", "--verify", verify.endpoint, "--quiet")
    file = tmp_path / "prompts.jsonl"
    file.touch()
    ended = []
    for more in ((), ("--prompts", "-"), ("--prompts", str(file))):
        with start("draft_node", *words, *more) as process:
            out, err = process.communicate("", timeout=120)
        assert (out, len(err.splitlines())) == ("", 1)
        assert "holds no prompts, so there is nothing to do; write" in err
        ended.append(process.returncode)
    assert ended == [1, 1, 1]
