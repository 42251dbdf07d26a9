"""One replica of a fleet: reads the other replicas from the peers file whenever the file changes."""

import logging
import socket
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


def join(peers_path: str | None, key: str | None, endpoint: str) -> PeersFile | None:
    """Reads the peers file, and returns this node's membership of the fleet. None if there is no peers file.

    This node is the one replica in the file with its public key, else with its endpoint, else with the machine's host
    name (in Kubernetes: the pod's). key: this node's public key; None: the wire has no keys. Raises ConfigError if the
    file is damaged, or if each of these finds no replica or several.
    """
    if peers_path is None:
        return None
    table, host = peers.read(peers_path), socket.gethostname()
    of_key = [replica.name for replica in table.replicas if key is not None and replica.public_key == key]
    of_endpoint = [replica.name for replica in table.replicas if replica.endpoint == endpoint]
    of_host = [replica.name for replica in table.replicas if replica.name == host]
    for found in (of_key, of_endpoint, of_host):
        if len(found) == 1:
            return PeersFile(peers_path, found[0], table)
    known = ", ".join(replica.name for replica in table.replicas)
    raise ConfigError(
        f"--peers {peers_path}: no replica there has this node's key alone, is at {endpoint}, or is called {host} as "
        f"this machine is; correct the file, which has: {known}"
    )
