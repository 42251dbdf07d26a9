"""Faults of every kind at the same time, on real processes and real lines: every text is the target's own.

Detection is measured by the nodes' own log lines, against twice the configured timeout (3 s on both sides).
"""

import time
from collections.abc import Callable

import openai
import pytest

from tests.faults.conftest import NAMES, Site
from tests.faults.texts import ask, check, check_all, mixed
from tests.nodes import Process, VerifyNode

pytestmark = pytest.mark.alone

TIMEOUT_S = 3.0  # the lease, and the silence after which a verify node counts as away
PROMISE_S = 2 * TIMEOUT_S
NUM_TOKENS = 150

Strike = Callable[[VerifyNode], None]


def check_notices(node: Process, line: str, since: float, after: int) -> None:
    """Checks by the node's own log that it notices in time; `since` is of `time.time`."""
    seconds = node.wait_for_line(line, after=after).at - since
    print(f"{line}: {seconds:.2f} s")
    assert seconds <= PROMISE_S


def test_faults_of_draft_nodes_and_of_their_lines(site: Site) -> None:
    """kill -9, SIGSTOP for 10 s, half-open connections, a cut of 5 s, resets, a second there and back."""
    streams = site.ask_and_strike(NUM_TOKENS)
    frail, stopped, verify = site.drafts["frail"], site.drafts["stopped"], site.verify
    begun, since, lines = time.monotonic(), time.time(), len(verify.log)
    frail.kill()
    stopped.stop()
    site.lines["cut"].half_open("up")
    site.lines["reset"].chunk_reset_share = 0.1
    for stream in streams["frail"]:
        stream.breaks()
        check(stream.wanted, stream.tokens, is_complete=False)
    for name in ("frail", "stopped"):
        check_notices(verify, f"a draft node was lost client={name}", since, lines)
    metrics = verify.metrics()
    for name in ("frail", "stopped"):
        assert metrics.get(f'client_sessions{{client="{name}"}}', 0) == 0
    site.lines["cut"].cut()
    frail.restart()
    sleep_until(begun + 5 + 5)
    site.lines["cut"].heal()
    stopped.go_on()
    frail.wait_until_ready()
    again = [ask(frail.url, one) for one in mixed(40)[:2]]
    for name in NAMES[1:]:
        check_all(streams[name])
    check_all(again)
    print(f"resets: {site.lines['reset'].num_resets}")
    assert site.lines["reset"].num_resets > 0
    site.lines["reset"].chunk_reset_share = 0.0
    site.wait_until_ready()


def sleep_until(moment: float) -> None:
    """A fault's own length, of `time.monotonic`."""
    time.sleep(max(0.0, moment - time.monotonic()))


@pytest.mark.parametrize(
    ("fault", "undo", "least_s"),
    [
        pytest.param(VerifyNode.kill, VerifyNode.restart, 0.0, id="killed"),
        pytest.param(VerifyNode.stop, VerifyNode.go_on, 10.0, id="stopped", marks=pytest.mark.slow_faults),
    ],
)
def test_the_verify_node_is_away_and_comes_back(site: Site, fault: Strike, undo: Strike, least_s: float) -> None:
    """Draft nodes keep their texts and go on with them; who does not wait that long is told."""
    streams = site.ask_and_strike(NUM_TOKENS)
    marks = {name: len(site.drafts[name].log) for name in NAMES}
    begun, since = time.monotonic(), time.time()
    fault(site.verify)
    try:
        for name, draft in site.drafts.items():
            check_notices(draft, "the verify node is away", since, marks[name])
        for stream in streams["frail"]:
            error = stream.breaks()
            assert isinstance(error, openai.APIError)
            assert error.code == "verify_away", error
            check(stream.wanted, stream.tokens, is_complete=False)  # a beginning that is exact
        sleep_until(begun + least_s)
    finally:
        undo(site.verify)
    for name in NAMES[1:]:
        check_all(streams[name])
    site.wait_until_ready()
    check_all([ask(site.drafts["frail"].url, one) for one in mixed(20)[:2]])
