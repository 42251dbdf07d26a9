"""Every command line: errors as one line, exit statuses, and the end by a signal."""

import argparse
import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from goodspeed.errors import ConfigError, TransportError, UnknownPolicyError
from goodspeed.serving import running

ROOT = Path(__file__).parents[2]

BUSY = """
import asyncio, sys
from goodspeed.serving.running import until_signal
from goodspeed.serving.loop import ModelThread

async def work():
    thread = ModelThread()
    def compute():
        print("busy", flush=True)
        sys.stdin.readline()
        print("computed", flush=True)
    try:
        await thread.run(compute)
    finally:
        print("closing", flush=True)
        thread.close()

print(asyncio.run(until_signal(work())), flush=True)
"""

CHATTY = """
import argparse, asyncio, sys
from goodspeed.serving import running

async def talk():
    while True:
        print("words " * 1000, flush=True)
        await asyncio.sleep(0)

async def work():
    async with asyncio.TaskGroup() as outer:
        async with asyncio.TaskGroup() as inner:
            inner.create_task(talk())

sys.exit(running.run("name", argparse.ArgumentParser(), lambda _: asyncio.run(work())))
"""


def run(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> int:
    """The exit status of a command whose body ends like that."""

    def body(_: argparse.Namespace) -> int:
        if error is not None:
            raise error
        return 7

    monkeypatch.setattr(sys, "argv", ["name"])
    return running.run("name", argparse.ArgumentParser(), body)


def start(program: str) -> "subprocess.Popen[str]":
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-W", "error", "-c", program], cwd=ROOT, text=True, **pipes)


@contextmanager
def busy(before: str = "") -> Iterator["subprocess.Popen[str]"]:
    """A command whose model computes, after these statements."""
    with start(before + BUSY) as process:
        assert process.stdout.readline() == "busy\n"
        yield process


def test_the_bodys_status_is_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, None) == 7
    assert run(monkeypatch, KeyboardInterrupt()) == 130


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TransportError("it is away"), 1),
        (ExceptionGroup("outer", [ExceptionGroup("inner", [TransportError("it is away")])]), 1),
        (ExceptionGroup("outer", [TransportError("it is away"), ConfigError("another")]), 1),
        (ConfigError("it is away"), 2),
        (ExceptionGroup("", [UnknownPolicyError("it is away")]), 2),
    ],
)
def test_a_named_error_is_one_line_and_wrong_usage_a_status_of_its_own(error, status, monkeypatch, capsys) -> None:
    assert run(monkeypatch, error) == status
    assert capsys.readouterr() == ("", "name: it is away\n")


def test_a_path_that_cannot_be_used_is_one_line(monkeypatch, capsys) -> None:
    assert run(monkeypatch, PermissionError(13, "Permission denied", "/closed/a\x1bb")) == 2
    assert capsys.readouterr() == ("", "name: /closed/a?b: Permission denied\n")
    for error in (OSError(5, "no file has to do with it"), OSError(24, "Too many open files", "/a")):
        with pytest.raises(OSError, match=error.strerror):
            run(monkeypatch, error)


def test_a_bug_stays_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError):
        run(monkeypatch, KeyError("bug"))
    with pytest.raises(ExceptionGroup) as caught:
        run(monkeypatch, ExceptionGroup("outer", [TransportError("it is away"), KeyError("bug")]))
    assert caught.group_contains(KeyError)
    assert not caught.group_contains(TransportError)


def test_nobody_reads_the_output() -> None:
    with start(CHATTY) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=30) == 141


@pytest.mark.parametrize("is_patient", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_model_end_and_a_second_one_does_not(number: signal.Signals, is_patient: bool) -> None:
    with busy() as process:
        process.send_signal(number)
        assert process.stdout.readline() == "closing\n"
        if is_patient:
            assert process.communicate("go on\n", timeout=30) == ("computed\nTrue\n", "")
            assert process.returncode == 0
        else:
            process.send_signal(number)
            assert process.wait(timeout=30) == -number


def test_a_closed_terminal_lets_the_model_end() -> None:
    """Its SIGHUP may come twice, from the shell and from the kernel."""
    default = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # these tests may run under nohup
    with busy(default) as process:
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "closing\n"
        process.send_signal(signal.SIGHUP)
        assert process.communicate("go on\n", timeout=30) == ("computed\nTrue\n", "")
        assert process.returncode == 0


def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    with busy("import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)") as process:
        process.send_signal(signal.SIGHUP)
        assert process.communicate("go on\n", timeout=30) == ("computed\nclosing\nFalse\n", "")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Handles SIGINT as in a terminal: a shell may start what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_what_was_loaded_before_a_daemon_serves_is_collected_no_more_and_its_end_was_no_interrupt() -> None:
    before = [signal.getsignal(number) for number in running.SIGNALS]
    found: list[int] = []

    async def serve() -> None:
        found.append(gc.get_freeze_count())

    assert asyncio.run(running.until_signal(serve())) is False
    assert found[0] > 10_000
    assert gc.get_freeze_count() == 0
    assert [signal.getsignal(number) for number in running.SIGNALS] == before


@pytest.mark.usefixtures("interruptible")
def test_what_is_cancelled_leaves_signals_as_they_were() -> None:
    before = [signal.getsignal(number) for number in running.SIGNALS]

    async def cancelled() -> None:
        task = asyncio.ensure_future(running.until_signal(asyncio.sleep(100)))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert [signal.getsignal(number) for number in running.SIGNALS] == before


def test_few_compiled_kernels_are_kept_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables are set before torch is loaded, which is what the body does."""
    kept, own = running.KERNELS
    monkeypatch.setattr(sys, "argv", ["name"])
    monkeypatch.delenv(kept, raising=False)
    monkeypatch.setenv(own, "7")
    seen: list[tuple[str | None, str | None]] = []

    def body(_: argparse.Namespace) -> int:
        seen.append((os.environ.get(kept), os.environ.get(own)))
        return 0

    assert running.run("name", argparse.ArgumentParser(), body) == 0
    assert seen == [(running.KERNELS[kept], "7")]
