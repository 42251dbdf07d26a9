"""One replica of a fleet: reads who the others are whenever that changes, and writes down what it has to do itself."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from goodspeed.errors import ConfigError
from goodspeed.fleet import table as peers
from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.table import Table

logger = logging.getLogger("goodspeed.fleet")

PEERS_LOOK_S = 1.0
"""How often the peers file is looked at, and the status file is written."""


class Member:
    """A node's peers file and its status file; it may have one of them only. A damaged file changes nothing."""

    def __init__(self, path: str | None, name: str, table: Table | None, status: str | None) -> None:
        """`join` makes one."""
        self.name = name
        self._path = path
        self._table = table
        self._status = status
        self._seen: tuple[int, ...] | None = None  # what changes with the file
        self._told = False
        self._is_writable = True

    def look(self) -> Sequence[Replica] | None:
        """Returns all replicas of the fleet when anything changed since the last look; None when nothing did."""
        if self._path is None or self._table is None:
            return None
        table = self._table
        if (seen := _state(self._path)) != self._seen:
            self._seen = seen
            table = self._read(self._path, table)
        if table == self._table and self._told:
            return None
        self._table, self._told = table, True
        return table.replicas

    def tell(self, load: Load) -> None:
        """Writes the load, with the time; where it cannot be written, that is logged once."""
        if self._status is None:
            return
        try:
            peers.write_whole(self._status, msgspec.json.encode(replace(load, told_at=time.time())))
            self._is_writable = True
        except OSError as error:
            if self._is_writable:
                extra = {"file": self._status, "why": error}
                logger.error("cannot write the status file: who keeps the fleet takes this node for hung", extra=extra)
            self._is_writable = False

    def _read(self, path: str, before: Table) -> Table:
        try:
            table = peers.read(path)
            if table.find(self.name) is None:
                raise ConfigError(f"--peers {path}: this node, {self.name}, is not among its replicas any more")
            return table
        except ConfigError as error:
            logger.warning("the peers file is damaged: what it said before stays", extra={"why": error})
            return before


def join(peers_path: str | None, name: str | None, status: str | None, key: str | None, endpoint: str) -> Member | None:
    """Makes the member that --peers, --replica and --status ask for; None without any of them.

    key: this node's public key, where the wire has keys. ConfigError where the file is damaged, or this node is not
    found in it.
    """
    if peers_path is None:
        return Member(None, "", None, status) if status is not None else None
    table = peers.read(peers_path)
    return Member(peers_path, name_in(table, peers_path, name, key, endpoint), table, status)


def name_in(table: Table, path: str, name: str | None, key: str | None, endpoint: str) -> str:
    """Returns this node's name in the table: the one that is given, or that of its key or else its endpoint."""
    known = ", ".join(replica.name for replica in table.replicas)
    if name is not None:
        if table.find(name) is None:
            raise ConfigError(f"--replica {name}: --peers {path} has no such replica; choose one of: {known}")
        return name
    of_key = [replica for replica in table.replicas if key is not None and replica.public_key == key]
    found = of_key if len(of_key) == 1 else [replica for replica in table.replicas if replica.endpoint == endpoint]
    if not found:
        raise ConfigError(
            f"--peers {path}: this node is not found there by its key or by {endpoint}; "
            f"say which it is with --replica NAME, one of: {known}"
        )
    return found[0].name


def _state(path: str) -> tuple[int, ...] | None:
    """What changes with a file; None where there is none."""
    try:
        seen = Path(path).stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino
