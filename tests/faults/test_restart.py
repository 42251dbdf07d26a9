"""Nodes that are told to stop: the verify node is restarted under load, a draft node leaves.

Silence tells nobody anything here: timeouts and leases are longer than any wait.
"""

import threading
import time
from types import TracebackType

from httpx2 import Client, TransportError

from tests.faults.nodes import DEADLINE_S, DraftNode, VerifyNode
from tests.faults.texts import ask, check, mixed

PATIENT = ("--verify-timeout-s", "600", "--connect-timeout-s", "600")
AWAY = 0
"""Instead of a status: nobody listens."""


class Ready:
    """What `/ready` says all the time; `said` has what came of every question, in order."""

    def __init__(self, url: str) -> None:
        self.said: list[int] = []
        self._url = f"{url}/ready"
        self._told = threading.Condition()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> "Ready":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()

    def wait_for(self, status: int, *, after: int) -> int:
        """Until it says so in answer number `after` or a later one, which that is."""
        deadline = time.monotonic() + DEADLINE_S
        with self._told:
            while status not in self.said[after:]:
                assert time.monotonic() < deadline, f"{self._url} says {self.said[-5:]}, and never {status}"
                self._told.wait(0.2)
            return self.said.index(status, after)

    def _ask(self) -> None:
        with Client(timeout=DEADLINE_S) as client:
            while not self._ends.wait(0.01):
                try:
                    status = client.get(self._url).status_code
                except TransportError:
                    status = AWAY
                with self._told:
                    self.said.append(status)
                    self._told.notify_all()


def test_the_verify_node_is_restarted_twice_under_load() -> None:
    wanted = mixed(240)
    with (
        VerifyNode("--lease-s", "600") as verify,
        DraftNode(verify.endpoint, *PATIENT) as one,
        DraftNode(verify.endpoint, *PATIENT, "--model", "tiny-draft-m") as two,
        Ready(verify.url) as verify_ready,
        Ready(one.url) as one_ready,
        Ready(two.url) as two_ready,
    ):
        for node in (one, two):
            node.wait_until_ready()
        streams = [ask((one, two)[n % 2].url, each) for n, each in enumerate(wanted)]
        for num_tokens in (20, 100):
            for stream in streams:
                stream.wait_for(num_tokens)
            begins = [len(ready.said) for ready in (verify_ready, one_ready, two_ready)]
            assert verify.terminate() == 0
            for ready, begin in zip((verify_ready, one_ready, two_ready), begins, strict=True):
                away = AWAY if ready is verify_ready else 503
                begin = ready.wait_for(away, after=begin)
                ready.wait_for(away, after=begin + 3)
                assert 200 not in ready.said[begin:]  # nor does it say so again before there is a verify node
            assert not any(stream.is_over for stream in streams)
            before = verify.num_events
            verify.restart()
            verify.wait_for("ready", after=before)
            for ready in (verify_ready, one_ready, two_ready):
                ready.wait_for(200, after=len(ready.said))
        for each, stream in zip(wanted, streams, strict=True):
            check(each, stream.finish())
        assert one.metrics()["reconnects_total"] == two.metrics()["reconnects_total"] == 2


def test_what_a_draft_node_had_is_free_when_it_ends() -> None:
    [wanted] = mixed(1000)[:1]
    with VerifyNode("--lease-s", "3600") as verify, DraftNode(verify.endpoint, "--drain-timeout-s", "0") as draft:
        draft.wait_until_ready()
        stream = ask(draft.url, wanted)
        stream.wait_for(20)
        assert verify.metrics()["kv_cache_usage_perc"] > 0
        assert draft.terminate() == 130  # its text was cut off
        stream.breaks()
        check(wanted, stream.tokens, is_complete=False)
        assert verify.wait_for_metric("kv_cache_usage_perc", lambda share: share == 0)["peers_connected"] == 0


def test_memory_for_two_sessions_and_sixteen_that_run() -> None:
    """The verify node is stopped until all of them are there, so that they do not come one after another."""
    wanted = [*mixed(48), *mixed(49)]
    with (
        VerifyNode("--lease-s", "600", "--kv-pages", "12", "--http", "127.0.0.1:0") as verify,
        DraftNode(verify.endpoint, *PATIENT, "--max-sessions", "16") as draft,
    ):
        draft.wait_until_ready()
        verify.stop()
        streams = [ask(draft.url, each) for each in wanted]
        draft.wait_for_metric("num_requests_running", lambda num: num == 16)
        verify.go_on()
        for each, stream in zip(wanted, streams, strict=True):
            check(each, stream.finish())
        told = verify.metrics()
        assert told["num_preemptions_total"] > 0
        assert told["kv_cache_usage_perc"] == 0
