"""Standard streams that fail: results that cannot be printed are a named error, log lines are lost.

A daemon waits for no reader, and counts what it drops.
"""

import asyncio
import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from goodspeed.serving import output
from goodspeed.serving.events import EventLog
from goodspeed.serving.output import Stream
from tests.pipes import Pipe
from tests.waiting import until

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this system")


def program(*lines: str, options: str = "") -> str:
    """A command whose body has these lines."""
    body = "\n    ".join(lines)
    return f"""
import argparse, asyncio, logging, os, sys
from goodspeed.serving import running
from goodspeed.serving.events import EventLog

def body(_):
    {body}
    return 0

sys.exit(running.run("name", argparse.ArgumentParser(), body{options}))
"""


READY = 'EventLog(enabled=True).write("ready")'
PRINTING = program(READY, "for number in range(100): print('line', number)")
LOGGING = program(
    "for number in range(10_000): print('line', number, file=sys.stderr, flush=True)  # more than any buffer holds",
    "logging.getLogger('goodspeed').error('it failed')",
    "opened = os.open(os.devnull, os.O_RDONLY)",
    "print('done', opened > 2)",
)
SERVING = program(READY, "asyncio.run(running.until_signal(asyncio.Event().wait()))", options=", daemon=True")


def shell(command: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """A command of the shell, for which $0 is Python, and $1 the first of the words."""
    whole, root = ["sh", "-c", command, sys.executable, *words], Path(__file__).parents[2]
    return subprocess.run(whole, cwd=root, capture_output=True, text=True, timeout=60)


def run(program: str, redirected: str) -> "subprocess.CompletedProcess[str]":
    """The program as a shell starts it."""
    return shell(f'exec "$0" -c "$1" {redirected}', program)


@pytest.mark.parametrize(
    ("redirected", "why"),
    [pytest.param(">/dev/full", "No space left on device", marks=needs_full), (">&-", "Bad file descriptor")],
)
def test_results_that_cannot_be_printed_are_one_line_and_a_status_of_their_own(redirected: str, why: str) -> None:
    ended = run(PRINTING, redirected)
    assert ended.returncode == 74
    assert ended.stderr == f"name: standard output cannot be written to ({why}); the output is lost\n"


@needs_full
def test_nor_can_a_help_what_is_in_the_buffer_at_the_end_or_the_error_itself() -> None:
    ended = shell('exec "$0" -m goodspeed --help >/dev/full')
    assert (ended.returncode, len(ended.stderr.splitlines())) == (74, 1)
    ended = run(PRINTING.replace(READY, "pass"), ">/dev/full")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (74, 1)
    assert run(PRINTING, ">/dev/full 2>/dev/full").returncode == 74


@pytest.mark.parametrize("redirected", [pytest.param("2>/dev/full", marks=needs_full), "2>&-"])
def test_a_log_that_cannot_be_written_is_lost_and_nothing_else(redirected: str) -> None:
    """Neither do its lines go to standard output, nor does a later file get the number of standard error."""
    ended = run(LOGGING, redirected)
    assert (ended.returncode, ended.stdout) == (0, "done True\n")


def test_characters_that_the_encoding_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:surrogateescape")
    ended = run(PRINTING.replace("range(100)", "'→'"), "")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("line \\u2192\n")


class Pausing:
    """A daemon's standard output and log, into a pipe that is read when the test says so."""

    def __init__(self) -> None:
        self.pipe = Pipe()
        self.output = Stream(self.pipe.writing, is_result=True, is_daemon=True)
        self.log = Stream(self.pipe.writing, "name", is_result=False, is_daemon=True)
        self.stdout = io.TextIOWrapper(self.output, "utf-8", line_buffering=True)

    def write(self, event: str, **fields: int) -> None:
        with redirect_stdout(self.stdout):
            EventLog(enabled=True).write(event, **fields)


@pytest.fixture
def pausing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pausing]:
    monkeypatch.setattr(output, "MAX_WAITING", 10_000)
    pausing = Pausing()
    pausing.pipe.fill()
    yield pausing
    pausing.pipe.close()


def test_what_nobody_reads_is_dropped_and_counted(pausing: Pausing) -> None:
    for number in range(1000):
        pausing.write("round", number=number)
    pausing.write("stopped")
    told = [json.loads(line) for line in pausing.pipe.read_until("stopped")]
    numbers = [event["number"] for event in told if event["event"] == "round"]
    assert 0 < len(numbers) < 1000
    assert numbers == [*range(len(numbers))]
    assert told[len(numbers) :] == [{"event": "dropped", "num_lines": 1000 - len(numbers)}, {"event": "stopped"}]
    pausing.write("round", number=1000)
    assert json.loads(pausing.pipe.read_until("round")[0])["number"] == 1000
    pausing.pipe.fill()
    for number in range(1000):
        pausing.write("round", number=number)
    assert json.loads(pausing.pipe.read_until("dropped")[-1])["num_lines"] > 0  # though nothing else is said


def test_results_are_kept_whatever_waits(pausing: Pausing) -> None:
    for number in range(1000):
        pausing.write("finish", number=number)
    assert [json.loads(line)["number"] for line in pausing.pipe.read_until('"number":999}')] == [*range(1000)]


async def test_who_has_results_waits_for_room(pausing: Pausing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", pausing.stdout)

    async def produce() -> None:
        for number in range(1000):
            pausing.write("finish", number=number)
            await output.room()

    producing = asyncio.create_task(produce())
    await until(lambda: pausing.output.is_full)
    await asyncio.sleep(0)
    assert not producing.done()
    assert len(await asyncio.to_thread(pausing.pipe.read_until, '"number":999}')) == 1000
    await producing


def test_a_line_may_be_logged_while_one_is(pausing: Pausing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A garbage collection within `put` may run a finalizer that logs."""

    def collect(self: Stream) -> bytes:
        monkeypatch.undo()
        self.write(b"inner\n")
        return b""

    monkeypatch.setattr(Stream, "_dropped", collect)
    writing = threading.Thread(target=pausing.log.write, args=(b"outer\n",), daemon=True)
    writing.start()
    writing.join(30)
    assert not writing.is_alive()
    assert pausing.pipe.read_until("outer") == ["inner", "outer"]


def test_an_end_waits_for_a_reader_so_long_and_no_longer(pausing: Pausing) -> None:
    pausing.log.write(b"line\n")
    pausing.log.finish(0.01)
    pausing.log.write(b"later\n")  # is lost, and blocks nothing
    pausing.output.write(b"done\n")
    assert "later" not in pausing.pipe.read_until("done")


@pytest.mark.parametrize(
    ("redirected", "status", "said"),
    [
        pytest.param(">/dev/full", 74, "name: standard output cannot be written to (No", marks=needs_full),
        (">&-", 74, "name: standard output cannot be written to (Bad"),
        ("| true", 141, ""),
    ],
)
def test_a_daemon_ends_as_soon_as_its_events_find_nobody(redirected: str, status: int, said: str) -> None:
    """It says one event only, and would serve for ever."""
    ended = shell(f'{{ "$0" -c "$1"; echo "status $?" >&2; }} {redirected}', SERVING)
    *lines, last = ended.stderr.splitlines()
    assert last == f"status {status}"
    assert [line.startswith(said) for line in lines] == [True] * bool(said)


def test_a_daemon_prints_a_traceback_whole() -> None:
    ended = run(SERVING.replace("asyncio.run(", "1 / 0; ("), "")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert ended.stdout == '{"event":"ready"}\n'
