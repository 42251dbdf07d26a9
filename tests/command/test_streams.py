"""A full disk and closed descriptors: results that cannot be printed are a named error, log lines are lost."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FULL = Path("/dev/full")

PRINTING = """
import argparse, sys
from goodspeed.command import running
from goodspeed.command.events import EventLog

def body(_):
    EventLog(enabled=True).write("ready")
    for number in range(100):
        print("line", number)
    return 0

sys.exit(running.run("name", argparse.ArgumentParser(), body))
"""

LOGGING = """
import argparse, logging, os, sys
from goodspeed.command import running

def body(_):
    for number in range(10_000):  # more than any buffer holds
        print("line", number, file=sys.stderr, flush=True)
    logging.getLogger("goodspeed").error("it failed")
    try:
        raise ValueError("wrong")
    except ValueError:
        logging.getLogger("goodspeed").exception("a round failed")
    opened = os.open(os.devnull, os.O_RDONLY)
    print("done", opened > 2)
    return 0

sys.exit(running.run("name", argparse.ArgumentParser(), body))
"""

needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full on this system")


def run(program: str, redirected: str) -> "subprocess.CompletedProcess[str]":
    """The program as a shell starts it."""
    command = f'exec "$0" -c "$1" {redirected}'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("redirected", "why"),
    [pytest.param(">/dev/full", "No space left on device", marks=needs_full), (">&-", "Bad file descriptor")],
)
def test_results_that_cannot_be_printed_are_one_line_and_a_status_of_their_own(redirected: str, why: str) -> None:
    ended = run(PRINTING, redirected)
    assert ended.returncode == 74
    assert ended.stderr == f"name: standard output cannot be written to ({why}); what was to be printed is lost\n"


@needs_full
def test_what_is_still_in_the_buffer_at_the_end_counts_too() -> None:
    ended = run(PRINTING.replace('EventLog(enabled=True).write("ready")', "pass"), ">/dev/full")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (74, 1)


@needs_full
def test_a_help_that_cannot_be_printed() -> None:
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -m goodspeed --help >/dev/full', sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (74, 1)


@pytest.mark.parametrize("redirected", [pytest.param("2>/dev/full", marks=needs_full), "2>&-"])
def test_a_log_that_cannot_be_written_is_lost_and_nothing_else(redirected: str) -> None:
    """Neither do its lines go to standard output, nor does a later file get the number of standard error."""
    ended = run(LOGGING, redirected)
    assert (ended.returncode, ended.stdout) == (0, "done True\n")


@needs_full
def test_an_error_without_a_place_to_say_it_keeps_its_status() -> None:
    assert run(PRINTING, ">/dev/full 2>/dev/full").returncode == 74


@needs_full
def test_a_log_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    again = LOGGING.replace(
        "    opened =", f"    os.dup2(os.open({str(tmp_path / 'log')!r}, os.O_WRONLY | os.O_CREAT), 2)\n    opened ="
    ).replace('print("done", opened > 2)', 'logging.getLogger("goodspeed").error("there is room again")')
    assert run(again, "2>/dev/full").returncode == 0
    assert "there is room again" in (tmp_path / "log").read_text()


def test_both_at_their_best() -> None:
    printed = run(PRINTING, "")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert len(printed.stdout.splitlines()) == 101
    logged = run(LOGGING, "")
    assert len(logged.stderr.splitlines()) == 10_002
    assert logged.stderr.splitlines()[-1].startswith("time=")
