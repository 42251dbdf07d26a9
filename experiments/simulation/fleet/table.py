"""The table of a simulated fleet: collected once a second, told to every verify node, at times old or wrong."""

from collections import deque
from collections.abc import Sequence
from math import inf
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from experiments.simulation.nodes.verify import VerifyNode
from experiments.simulation.settings import Lies, Settings
from goodspeed.fleet.replicas import Load, Replica

FORGOTTEN_S = 5.0
"""A verify node that has told nothing for so long is not in the table any more."""

STRANGE = "strange"
EMPTY_ROUND_S = 1e-6


class Row(NamedTuple):
    """One verify node's, and when it told."""

    replica: Replica
    told_at: float


def name(number: int) -> str:
    return f"verify-{number}"


def endpoint(number: int, port: int = 1) -> str:
    return f"tcp://{name(number)}:{port}"


class Table:
    """The table that tells the verify nodes of each other."""

    def __init__(self, settings: Settings, random: Random) -> None:
        self.frozen_until = 0.0
        self.wrong_at = -inf  # it last said what was not so
        self._settings = settings
        self._random = random
        self._rows: dict[int, Row] = {}
        self._past: deque[tuple[float, dict[int, Row]]] = deque()

    def collect(self, nodes: Sequence[VerifyNode], now: float) -> None:
        """Asks all of them what they have to do."""
        if now < self.frozen_until:
            return
        for number, node in enumerate(nodes):
            load = node.load()
            if load is not None:
                self._rows[number] = Row(Replica(name(number), endpoint(number), None, load), now)
        self._rows = {number: row for number, row in self._rows.items() if now - row.told_at < FORGOTTEN_S}
        self._past.append((now, dict(self._rows)))

    def tell(self, nodes: Sequence[VerifyNode], now: float) -> None:
        """Tells all of them."""
        lag_s, lies = self._settings.fleet.table_lag_s, self._settings.fleet.lies
        while len(self._past) > 1 and self._past[1][0] <= now - lag_s:
            self._past.popleft()
        if lag_s or now < self.frozen_until:
            self.wrong_at = now
        rows = self._past[0][1] if self._past else {}
        for number, node in enumerate(nodes):
            if node.core is not None:
                node.know_replicas(name(number), self._rows_for(number, rows, lies, now))

    def _rows_for(self, own: int, rows: dict[int, Row], lies: Lies, now: float) -> list[tuple[Replica, float]]:
        told = [(row.replica, now - row.told_at) for row in rows.values()]
        if lies == "none" or self._random.random() < 0.5:
            return told
        self.wrong_at = now
        return [(_lie(one, lies), 0.0) if one.name != name(own) else (one, age_s) for one, age_s in told]


def _lie(replica: Replica, lies: Lies) -> Replica:
    load = replica.load
    if load is None:
        return replica
    if lies == "strange":
        return replace(replica, load=replace(load, target_fingerprint=STRANGE))
    empty = Load(load.told_at, load.boot_id, load.target_fingerprint, max_sessions=100, round_s=EMPTY_ROUND_S)
    return replace(replica, load=empty)
