"""Lines of standard input: all of them, and nobody waits for one that never comes."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio
from draft_node import standard_input
from goodspeed.command import until_signal

async def work():
    async for line in standard_input.lines():
        print(ascii(line), flush=True)

asyncio.run(until_signal(work()))
print("end", flush=True)
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
