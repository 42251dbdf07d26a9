"""Compiled constraints that are kept: those of open sessions, and of others the newest, each within one scope.

How long an answer takes tells whether its form was compiled before, so nobody finds what another has sent. Of what no
session holds, that of the client goes first who has the most, and of his the user's who has the most, the oldest first:
who sends many throws out his own. Knows nothing about compiling, and takes no lock.
"""

from collections import Counter, OrderedDict
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

MAX_KEPT = 64
"""Constraints that are kept without a session that holds them, with at most MAX_CHARS of source together."""

MAX_CHARS = 524_288


class Scope(NamedTuple):
    """Whose a constraint is: nobody of another scope can tell that it was compiled."""

    client: bytes = b""  # a verify node's client; empty at a node that has no more than users
    user: bytes = b""  # who is told apart within the client


ALONE = Scope()
"""The scope of whoever has a process to himself."""


def scope_of(user: str) -> Scope:
    """The scope of a draft node's user; the empty name is that of whoever has the node to himself."""
    return Scope(user=user.encode())


class Key(NamedTuple):
    """What a compiled constraint is found by."""

    scope: Scope
    kind: str
    source: str


class Kept(Generic[T]):
    """What was compiled, by key."""

    def __init__(self) -> None:
        self._free: OrderedDict[Key, T] = OrderedDict()  # held by none; the newest last
        self._held: dict[Key, T] = {}
        self._holders: dict[bytes, list[Key]] = {}
        self._num_holders: Counter[Key] = Counter()

    def get(self, key: Key) -> T | None:
        """Returns what is kept, which becomes the newest."""
        if key in self._free:
            self._free.move_to_end(key)
        return self._held.get(key, self._free.get(key))

    def put(self, key: Key, found: T) -> None:
        """Keeps what was compiled as the newest, and throws others out beyond the bounds."""
        if key in self._held:
            return
        self._free[key] = found
        self._free.move_to_end(key)
        while len(self._free) > 1 and (len(self._free) > MAX_KEPT or self._num_chars() > MAX_CHARS):
            del self._free[self._first_to_go()]

    def hold(self, holder: bytes, key: Key, found: T) -> None:
        """Keeps it until the holder releases it. One holder has two at most: what it began with, and its newest."""
        held = self._holders.setdefault(holder, [])
        if key in held:
            return
        self._free.pop(key, None)
        self._held.setdefault(key, found)
        self._num_holders[key] += 1
        held.append(key)
        if len(held) > 2:
            self._let_go(held.pop(1))

    def release(self, holder: bytes, but: tuple[str, str] | None = None) -> None:
        """The holder holds nothing any more but this kind and source; what nobody holds is the newest of the others."""
        held = self._holders.pop(holder, [])
        if left := [key for key in held if (key.kind, key.source) == but]:
            self._holders[holder] = left
        for key in held:
            if key not in left:
                self._let_go(key)

    def of(self, holder: bytes, kind: str, source: str) -> T | None:
        """Returns what this holder holds of the kind and source, in whichever scope."""
        found = [key for key in self._holders.get(holder, ()) if (key.kind, key.source) == (kind, source)]
        return self._held[found[0]] if found else None

    def _num_chars(self) -> int:
        return sum(len(key.source) for key in self._free)

    def _let_go(self, key: Key) -> None:
        self._num_holders[key] -= 1
        if self._num_holders[key] == 0:
            del self._num_holders[key]
            self.put(key, self._held.pop(key))

    def _first_to_go(self) -> Key:
        """The oldest of the scope with the most, within the client with the most; never the newest of all."""
        *others, _ = self._free
        clients, scopes = Counter[bytes](), Counter[Scope]()
        for key in self._free:
            clients[key.scope.client] += _share(key)
            scopes[key.scope] += _share(key)
        return max(others, key=lambda key: (clients[key.scope.client], scopes[key.scope]))


def _share(key: Key) -> int:
    """How much of both bounds it takes, in characters: its own, and those that MAX_CHARS has for each of MAX_KEPT."""
    return len(key.source) + MAX_CHARS // MAX_KEPT
