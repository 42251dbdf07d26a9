"""Processes that print events: heard, watched, and gone at the end. The processes here are tiny programs."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from goodspeed.app.demo import processes
from goodspeed.app.demo.processes import Child, Processes
from goodspeed.errors import ProcessError

pytestmark = pytest.mark.nodes

ROOT = Path(__file__).parents[3]
SPEAK = "import json, sys, time\nsay = lambda **event: print(json.dumps(event), flush=True)\n"
WAIT = "say(event='ready')\ntime.sleep(600)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT
TIMEOUT_S = 30.0


def program(text: str) -> list[str]:
    return [sys.executable, "-c", SPEAK + text]


@asynccontextmanager
async def started(text: str, name: str = "it") -> AsyncIterator[Child]:
    """A program among processes that end with the context."""
    async with Processes(dict(os.environ)) as processes:
        yield await processes.start(name, program(text))


async def test_the_first_event_of_a_kind_is_heard_and_other_lines_are_not() -> None:
    async with started("say(event='a', n=1)\nprint('noise')\nprint('3')\nsay(x=1)\nsay(event='a', n=2)\n") as child:
        assert await child.expect("a", TIMEOUT_S) == {"event": "a", "n": 1}
        assert await child.ended() == 0


async def test_one_that_never_gets_ready_is_not_waited_for_for_ever() -> None:
    async with started(WAIT) as child:
        await child.expect("ready", TIMEOUT_S)
        with pytest.raises(ProcessError, match=r"it was not connected within 0.01 s"):
            await child.expect("connected", 0.01)


def test_all_are_gone_after_an_exception_even_the_stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[Child] = []
    waited_for = iter((1, 2))  # the one that obeys, as long as it takes; then, after the kill, both
    wait_for_ends = processes.wait_for_ends

    async def wait(running: Sequence[Child], timeout_s: float) -> None:
        assert timeout_s == processes.GRACE_S
        await wait_for_ends(running[: next(waited_for)], TIMEOUT_S)

    monkeypatch.setattr(processes, "wait_for_ends", wait)

    async def work() -> None:
        async with Processes(dict(os.environ)) as processes:
            for text in (WAIT, STUBBORN):
                children.append(await processes.start("it", program(text)))
            for child in children:
                await child.expect("ready", TIMEOUT_S)
            raise KeyError("something else")

    with pytest.raises(KeyError, match="something else"):
        asyncio.run(work())
    assert [child.process.returncode for child in children] == [-signal.SIGTERM, -signal.SIGKILL]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nobody_behind(number: signal.Signals) -> None:
    tree = (
        "import asyncio, os, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # these tests may run under nohup, which is inherited
        "from goodspeed.app.demo.processes import Processes, run_interruptible\n"
        "async def work():\n"
        "    async with Processes(dict(os.environ)) as processes:\n"
        f"        program = [sys.executable, '-c', {SPEAK + WAIT!r}]\n"
        "        children = [await processes.start('it', program) for _ in range(3)]\n"
        "        for child in children:\n"
        "            await child.expect('ready', 30)\n"
        "        print(*(child.process.pid for child in children), flush=True)\n"
        "        await children[0].ended()\n"
        "try:\n"
        "    run_interruptible(work())\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    with subprocess.Popen([sys.executable, "-c", tree], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        ids = [int(word) for word in process.stdout.readline().split()]
        assert len(ids) == 3
        process.send_signal(number)
        try:
            assert process.wait(timeout=TIMEOUT_S) == 130
        finally:
            process.kill()
    assert not [pid for pid in ids if Path(f"/proc/{pid}").exists()]
