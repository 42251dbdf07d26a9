"""One replica of a fleet: reads the other replicas from the peers file whenever the file changes."""

import logging
from collections.abc import Sequence
from typing import Protocol

from goodspeed.errors import ConfigError
from goodspeed.fleet import table as peers
from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.table import Table
from goodspeed.untrusted import file_state

logger = logging.getLogger("goodspeed.fleet")

PEERS_LOOK_S = 1.0
"""Seconds between two checks of the fleet, each of which reports this node's load."""


class Member(Protocol):
    """This node as a member of a fleet."""

    @property
    def name(self) -> str: ...

    def look(self, load: Load) -> Sequence[Replica] | None:
        """Takes this node's load; returns all replicas if anything changed since the previous call, else None."""


class PeersFile:
    """A fleet listed in a file; this node's load is not reported. A damaged file changes nothing."""

    def __init__(self, path: str, name: str, table: Table) -> None:
        """`join` creates a PeersFile."""
        self.name = name
        self._path = path
        self._table = table
        self._seen: tuple[int, ...] | None = None  # the file's state when last read
        self._told = False

    def look(self, load: Load) -> Sequence[Replica] | None:
        table = self._table
        if (seen := file_state(self._path)) != self._seen:
            self._seen = seen
            table = self._read(table)
        if table == self._table and self._told:
            return None
        self._table, self._told = table, True
        return table.replicas

    def _read(self, before: Table) -> Table:
        try:
            table = peers.read(self._path)
            if table.find(self.name) is None:
                raise ConfigError(f"--peers {self._path}: this node, {self.name}, is not among its replicas any more")
            return table
        except ConfigError as error:
            logger.warning("the peers file is damaged: what it said before stays", extra={"why": error})
            return before


def join(peers_path: str | None, name: str | None, key: str | None, endpoint: str) -> PeersFile | None:
    """Makes the member for --peers and --replica; None without --peers.

    name: this node's in the fleet; None: that of its key, else that of its endpoint. key: this node's public key; None:
    the wire has no keys. Raises ConfigError if the file is damaged or this node is not in it.
    """
    if peers_path is None:
        return None
    table = peers.read(peers_path)
    known = ", ".join(replica.name for replica in table.replicas)
    if name is not None:
        if table.find(name) is None:
            raise ConfigError(f"--replica {name}: --peers {peers_path} has no such replica; choose one of: {known}")
        return PeersFile(peers_path, name, table)
    of_key = [replica for replica in table.replicas if key is not None and replica.public_key == key]
    found = of_key if len(of_key) == 1 else [replica for replica in table.replicas if replica.endpoint == endpoint]
    if not found:
        raise ConfigError(
            f"--peers {peers_path}: this node is not found there by its key or by {endpoint}; "
            f"say which it is with --replica NAME, one of: {known}"
        )
    return PeersFile(peers_path, found[0].name, table)
