"""Lines of standard input: all of them, and nobody waits for one that never comes."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from draft_node.service import standard_input
from draft_node.service.standard_input import MAX_WAITING
from tests.waiting import run_async

ROOT = Path(__file__).parents[3]
PROGRAM = """
import argparse, asyncio, sys
from draft_node.service import standard_input
from goodspeed.serving.running import run, until_signal

async def work():
    async for line in standard_input.lines():
        print(ascii(line), flush=True)

def body(namespace):
    asyncio.run(until_signal(work()))
    print("end", flush=True)
    return 0

sys.exit(run("name", argparse.ArgumentParser(), body))
"""
COMMAND = [sys.executable, "-c", PROGRAM]


def test_every_line_comes_without_its_end() -> None:
    given = "one\n\n größer\u2028\nlast".encode() + b"\xff"
    ended = subprocess.run(COMMAND, cwd=ROOT, input=given, capture_output=True)
    assert ended.stderr == b""
    assert ended.stdout.decode().splitlines() == ["'one'", "''", r"' gr\xf6\xdfer\u2028'", r"'last\ufffd'", "end"]


def test_a_signal_ends_the_wait_for_a_line() -> None:
    with subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("here\n")
        process.stdin.flush()
        assert process.stdout.readline() == "'here'\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "end\n"  # though standard input is still open
        assert process.wait(timeout=30) == 0


@pytest.mark.parametrize(
    ("redirection", "message"),
    [("<&-", "name: standard input is closed; "), ("0>/dev/null", "name: cannot read standard input: ")],
    ids=["closed", "unreadable"],
)
def test_standard_input_that_cannot_be_read_is_an_error_and_no_wait(redirection: str, message: str) -> None:
    words = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *COMMAND]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(message)
    assert len(ended.stderr.splitlines()) == 1


@run_async
async def test_lines_are_read_ahead_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    num_lines, taken, most_ahead = 20 * MAX_WAITING, 0, 0

    def endless() -> Iterator[str]:
        nonlocal most_ahead
        for number in range(num_lines):
            most_ahead = max(most_ahead, number - taken)
            yield f"{number}\n"

    monkeypatch.setattr(standard_input, "open", lambda *_, **__: nullcontext(endless()), raising=False)
    async for line in standard_input.lines():
        assert line == str(taken)
        taken += 1
    assert taken == num_lines
    assert most_ahead <= MAX_WAITING + 1  # one more is in the reader's hand
