"""Nodes that are told to stop: the verify node is restarted under load, a draft node leaves.

Silence tells nobody anything here: timeouts and leases are longer than any wait.
"""

import threading
import time

import pytest
from httpx2 import Client, TransportError

from tests.faults.texts import ask, begin, check, check_all, mixed
from tests.nodes import DEADLINE_S, POLL_S, DraftNode, VerifyNode

pytestmark = pytest.mark.nodes

PATIENT = ("--connect-timeout-s", "600")
AWAY = 0  # instead of a status: nobody listens


class Ready:
    """Asks `/ready` all the time; `said` has the answers in order."""

    def __init__(self, url: str) -> None:
        self.said: list[int] = []
        self._url = f"{url}/ready"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> "Ready":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def wait_for(self, status: int, *, after: int) -> int:
        """Waits until it says so in answer number `after` or a later one; returns that answer's number."""
        deadline = time.monotonic() + DEADLINE_S
        while status not in self.said[after:]:
            assert time.monotonic() < deadline, f"{self._url} says {self.said[-5:]}, and never {status}"
            time.sleep(POLL_S)
        return self.said.index(status, after)

    def _ask(self) -> None:
        with Client(timeout=DEADLINE_S) as client:
            while not self._ends.wait(0.05):
                try:
                    self.said.append(client.get(self._url).status_code)
                except TransportError:
                    self.said.append(AWAY)


@pytest.mark.parametrize("measures", [False, pytest.param(True, marks=pytest.mark.slow_faults)])
def test_the_verify_node_is_restarted_twice_under_load(*, measures: bool) -> None:
    """Everything else in this folder measures nothing: where drafts do not pay, there would be none to lose."""
    with (
        VerifyNode(heartbeat_s=60.0, measures=measures) as verify,
        DraftNode(verify.endpoint, *PATIENT) as draft,
        Ready(verify.url) as verify_ready,
        Ready(draft.url) as draft_ready,
    ):
        draft.wait_until_ready()
        streams = begin(draft.url, mixed(160)[:6], 1)
        for num_tokens in (10, 40):
            streams[-1].wait_for(num_tokens)
            begins = len(verify_ready.said), len(draft_ready.said)
            assert verify.terminate() == 0
            begins = verify_ready.wait_for(AWAY, after=begins[0]), draft_ready.wait_for(503, after=begins[1])
            draft_ready.wait_for(503, after=begins[1] + 3)
            assert set(draft_ready.said[begins[1] :]) == {503}  # until there is another verify node
            assert set(verify_ready.said[begins[0] :]) == {AWAY}
            assert not all(stream.is_over for stream in streams)
            before = verify.num_events
            verify.restart()
            verify.wait_for("ready", after=before)
            for ready in (verify_ready, draft_ready):
                ready.wait_for(200, after=len(ready.said))
        check_all(streams)
        assert draft.metrics()["reconnects_total"] == 2


@pytest.mark.slow_faults
def test_memory_for_two_sessions_and_sixteen_that_run() -> None:
    """The verify node is stopped until all of them are there, so that they do not come one after another.

    Then the draft node leaves in the middle of a text: what it had is free, though the lease is far from over.
    """
    with (
        VerifyNode(heartbeat_s=60.0, kv_pages=20) as verify,
        DraftNode(verify.endpoint, *PATIENT, "--max-sessions", "16", module=("tests.draft_node.hasty",)) as draft,
    ):
        draft.wait_until_ready()
        verify.stop()
        streams = [ask(draft.url, each) for each in (*mixed(40), *mixed(41))]
        draft.wait_for_metric("num_requests_running", lambda num: num == 16)
        verify.go_on()
        check_all(streams)
        assert verify.metrics()["num_preemptions_total"] > 0

        stream = ask(draft.url, mixed(200)[7])
        stream.wait_for(1)
        assert draft.terminate() == 130  # a text was cut off
        stream.breaks()
        check(stream.wanted, stream.tokens, is_complete=False)
        assert verify.wait_for_metric("kv_cache_usage_perc", lambda share: share == 0)["peers_connected"] == 0
