"""A real verify node with `--tp 2`: it writes what one rank writes, a lost rank ends it, and none outlives it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.texts import ask, check, mixed
from tests.nodes import DEADLINE_S, DraftNode, VerifyNode

pytestmark = pytest.mark.nodes


def rank_of(verify: VerifyNode) -> int:
    """The process id of rank 1."""
    found = subprocess.run(["pgrep", "-P", str(verify.process.pid)], capture_output=True, text=True, check=True)
    (pid,) = map(int, found.stdout.split())
    assert b"goodspeed.engine.torch.tensor_parallel" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return pid


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{pid}").exists() and "\tZ (zombie)" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.05)


def test_a_lost_rank_ends_the_node_and_one_rank_goes_on_with_the_texts_of_two() -> None:
    wanted = mixed(80)
    with VerifyNode("--tp", "2") as verify, DraftNode(verify.endpoint, "--connect-timeout-s", "600") as draft:
        draft.wait_until_ready()
        texts = [ask(draft.url, one) for one in wanted]
        for text in texts:
            text.wait_for(20)
        rank = rank_of(verify)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as from a terminal, but for rank 0
            os.kill(rank, number)
        for text in texts:
            text.wait_for(40)

        os.kill(rank, signal.SIGKILL)
        assert verify.end() == 1
        said = verify.log[-1].text
        assert said == "goodspeed-verify: rank 1 of --tp 2 ended by signal 9; restart the verify node"
        verify.words += ["--tp", "1"]
        verify.restart()
        for text, one in zip(texts, wanted, strict=True):
            check(one, text.finish())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_node(number: signal.Signals) -> None:
    with VerifyNode("--tp", "2") as verify:
        verify.wait_for("ready")
        rank = rank_of(verify)
        verify.process.send_signal(number)
        assert verify.end() == (-number if number == signal.SIGKILL else 0)
        wait_until_gone(rank)


@pytest.mark.slow_faults
def test_no_process_outlives_a_node_that_is_killed_while_it_loads() -> None:
    with VerifyNode("--tp", "2") as verify:
        verify.wait_for_line("loading")
        until = time.monotonic() + DEADLINE_S
        while subprocess.run(["pgrep", "-P", str(verify.process.pid)], capture_output=True).returncode:
            assert time.monotonic() < until
            time.sleep(0.05)
        found = subprocess.run(["pgrep", "-P", str(verify.process.pid)], capture_output=True, text=True, check=True)
        verify.kill()
        for pid in map(int, found.stdout.split()):
            wait_until_gone(pid)
