"""Rank 0's side: starts the other ranks' processes, sends them each order, detects lost ranks, and ends all ranks.

`check` may be called from another thread than `told`.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
from torch import distributed

from goodspeed.engine.torch.checkpoints import Split
from goodspeed.engine.torch.passes import Order
from goodspeed.engine.torch.tensor_parallel import joining, orders
from goodspeed.engine.torch.tensor_parallel.joining import POLL_S, RankSettings
from goodspeed.errors import GoodSpeedError, RankLost, first_line
from goodspeed.untrusted import python_module

NOTICE_S = 3.0
"""Longest wait, after a failed order, for a rank's process to exit and thereby explain the failure."""

LONGEST_S = 600.0
"""Time after which the ranks of an unfinished order count as lost; each single wait of a rank has a far lower limit."""

CLOSE_S = 5.0
"""Time in which a rank must exit after the end marker."""

WORKER = "goodspeed.engine.torch.tensor_parallel"


class Ranks:
    """The other ranks of a model; this process is rank 0. All ranks end with this process, however it ends."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self._store = joining.make_store(num_ranks)
        self._processes: list[subprocess.Popen[bytes]] = []  # of ranks 1 and up
        self._told_at: float | None = None  # start of the order in progress
        self._has_failed = False

    @classmethod
    def start(cls, part: RankSettings, num_ranks: int, *, worker: str = WORKER) -> "Ranks":
        """Starts processes that load their parts of the model, and joins them; raises RankLost if one exits.

        worker: the module that a rank's process runs.
        """
        ranks = cls(num_ranks)
        parts = [
            msgspec.structs.replace(part, rank=rank, num_ranks=num_ranks, port=ranks._store.port)
            for rank in range(num_ranks)
        ]
        try:
            for other in parts[1:]:
                words = [*python_module(worker), msgspec.json.encode(other).decode()]
                ranks._processes.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
            joining.meet(ranks._store, joining.JOINED, num_ranks, ranks.check)
            joining.join(ranks._store, parts[0])
        except BaseException:
            ranks.close()
            raise
        return ranks

    @property
    def split(self) -> Split:
        """Returns the split by which rank 0 loads its part; loading raises RankLost if another rank exits meanwhile."""
        return Split(self.num_ranks, lambda: joining.meet(self._store, joining.LOADED, self.num_ranks, self.check))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Runs work that all ranks do together inside the block, such as testing the model.

        Turns any Exception except GoodSpeedError into RankLost. After any error the ranks are out of step,
        and none can continue.
        """
        try:
            yield
        except BaseException as error:
            try:
                if isinstance(error, GoodSpeedError) or not isinstance(error, Exception):
                    raise
                raise self._lost(error) from error
            finally:  # set last: until `_lost` is done, `check` on another thread could not name the lost rank
                self._has_failed = True

    @contextmanager
    def told(self, order: Order) -> Iterator[None]:
        """Sends an order to all ranks; this process computes it inside the block. Raises as `together` does."""
        self.check()
        data = orders.encode(order)
        self._told_at = time.monotonic()
        try:
            with self.together():
                for process in self._processes:
                    _write(process, data)
                yield
        finally:
            self._told_at = None

    def check(self) -> None:
        """Raises RankLost if a rank has exited, does not answer, or is out of step."""
        self._refuse_ended()
        told_at = self._told_at
        if told_at is not None and time.monotonic() - told_at > LONGEST_S:
            self._has_failed = True
            raise self._error(f"the ranks of --tp {self.num_ranks} took more than {LONGEST_S:g} s for a forward pass")
        if self._has_failed:
            raise self._error(f"the ranks of --tp {self.num_ranks} are out of step")

    def close(self) -> None:
        """Ends all ranks; kills those that do not exit by themselves."""
        for process in self._processes:
            if not self._has_failed:
                with suppress(OSError, subprocess.TimeoutExpired):
                    _write(process, orders.encode(None))
                    process.wait(CLOSE_S)  # the pipe stays open until then: a closed pipe ends a rank at once
            process.kill()
            process.communicate()
        if not self._has_failed and distributed.is_initialized():
            distributed.destroy_process_group()

    def _refuse_ended(self) -> None:
        for rank, process in enumerate(self._processes, 1):
            if (status := process.poll()) is not None:
                self._has_failed = True
                how = f"by signal {-status}" if status < 0 else f"with status {status}"
                raise self._error(f"rank {rank} of --tp {self.num_ranks} ended {how}")

    def _lost(self, error: Exception) -> RankLost:
        """Returns the error for a failure: the rank that has exited, if any, else the failure seen here."""
        until = time.monotonic() + NOTICE_S
        while time.monotonic() < until:
            try:
                self._refuse_ended()
            except RankLost as lost:
                return lost
            time.sleep(POLL_S)
        return self._error(f"a joint computation of the ranks of --tp {self.num_ranks} failed ({first_line(error)})")

    def _error(self, what: str) -> RankLost:
        return RankLost(f"{what}; restart the verify node")


def _write(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    if process.stdin is None:
        raise RuntimeError("a rank's process was started without a pipe")
    process.stdin.write(data)
    process.stdin.flush()
