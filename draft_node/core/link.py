"""The draft node's connection to the verify node: handshake, signs of life, reconnection. No I/O, no clock.

Events in (a message, the time, a failed send), commands out; `core.py` turns them into actions.
"""

from dataclasses import dataclass
from enum import Enum

from goodspeed.errors import PeerRefused
from goodspeed.wire.handshake import VERSION, Heartbeat, Hello, Welcome
from goodspeed.wire.messages import DownMessage, Refusal

HELLO_S = 1.0
"""An unanswered Hello is repeated, at first after so long."""

MAX_BACKOFF_S = 5.0
REBUILD_S = 10.0
"""A socket that received nothing for this long is replaced. An encrypted handshake and a Hello take five round trips,
and the socket itself begins a handshake again that takes longer than this."""

MISSED_BEATS = 3
FATAL = frozenset({"version", "tokenizer"})
KEPT_OUT = frozenset({"not_enrolled", "wrong_name", "barred"})
"""Refusals that somebody at the verify node, or time, can mend: asked again, ever more rarely."""


class Command(Enum):
    """An order to the core about the connection."""

    SAY_HELLO = "say_hello"
    OPEN_SESSIONS = "open_sessions"  # the handshake is done
    DROP_SESSIONS = "drop_sessions"  # the verify node is away, or knows nothing of us
    RECONNECT = "reconnect"  # rebuild the socket
    BEAT = "beat"  # send a sign of life


@dataclass(slots=True)
class VerifyLink:
    """Tracks whether the verify node is there, and says what to do about it."""

    hello: Hello
    timeout_s: float  # silence after which it counts as away
    welcome: Welcome | None = None
    away_since: float | None = None  # None while it is there
    says_goodbye: bool = False  # it went in good order
    is_silent: bool = False  # it was lost by its silence
    trouble: str | None = None  # why the verify node refuses this node, and what to do, if it said so
    _heard_at: float = 0.0
    _hello_at: float = 0.0
    _backoff_s: float = HELLO_S
    _beat_at: float = 0.0
    _built_at: float = 0.0  # the socket
    _must_rebuild: bool = False  # this socket will not connect
    _barred: str | None = None  # reason of the last `barred` refusal; None after another of KEPT_OUT, or a Welcome

    @classmethod
    def begin(cls, hello: Hello, timeout_s: float, now: float) -> "VerifyLink":
        return cls(hello, timeout_s, away_since=now, _heard_at=now, _hello_at=now, _built_at=now)

    @property
    def _patience_s(self) -> float:
        """Silence that is no accident: three heartbeats at least, however seldom the verify node sends them."""
        return max(self.timeout_s, MISSED_BEATS * self.welcome.heartbeat_s if self.welcome else 0.0)

    @property
    def connected(self) -> bool:
        return self.away_since is None

    def away_s(self, now: float) -> float:
        """Returns for how long the verify node has been away; 0 while it is there."""
        return 0.0 if self.away_since is None else now - self.away_since

    def absence(self, now: float) -> str:
        """Describes the absence to users; says neither where the verify node is, nor why it refuses this node."""
        return f"the verify node has been away for {max(1, round(self.away_s(now)))} s"

    def absence_at(self, endpoint: str, timeout_s: float) -> str:
        """Describes an absence of `timeout_s` to this node's operator: where, why, and what to do."""
        what = f"the verify node at {endpoint} has been away for {timeout_s:g} s"
        if self.trouble:
            return f"{what}, because it refuses this node: {self.trouble}"
        return f"{what}; start goodspeed-verify there, or check the address"

    def heard(self, message: DownMessage, now: float) -> list[Command]:
        """Any message is a sign of life; PeerRefused for a refusal that no retry can mend."""
        self._heard_at = now
        if isinstance(message, Welcome):
            return self._welcomed(message, now)
        if isinstance(message, Refusal) and message.session_id is None:
            if message.code in FATAL:
                raise PeerRefused(message.code, message.what, message.what_to_do)
            if message.code in KEPT_OUT:
                self.trouble = f"{message.what} ({message.code}); {message.what_to_do}"
                self._barred = self.trouble if message.code == "barred" else None
            if message.code in KEPT_OUT | {"hello_first"} and self.connected:
                return self._lost(now)
            if message.code == "draining" and self.connected:
                self.says_goodbye = True
                self._lost(now)
                return [Command.DROP_SESSIONS]  # it goes in good order: the next Hello is soon enough
        if isinstance(message, Heartbeat) and self.welcome and message.boot_id != self.welcome.boot_id:
            return self._lost(now) if self.connected else []
        return []

    def tick(self, now: float) -> list[Command]:
        """Time passes: repeat a Hello that was not answered, notice silence, send heartbeats."""
        if self.connected:
            if now - self._heard_at > self._patience_s:
                self.is_silent = True
                return self._rebuilt(self._lost(now), now)
            if now < self._beat_at:
                return []
            self._beat_at = now + (self.welcome.heartbeat_s if self.welcome else HELLO_S)
            return [Command.BEAT]
        if now < self._hello_at:
            return []
        self._hello_at = now + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)
        if self._must_rebuild or now - max(self._heard_at, self._built_at) > REBUILD_S:
            return self._rebuilt([Command.SAY_HELLO], now)
        return [Command.SAY_HELLO]

    def turned_away(self, why: str, now: float) -> list[Command]:
        """The verify node refused the connection. The next Hello goes out on another one, when it is due."""
        self.trouble, self._must_rebuild = self._barred or why, True
        if not self.connected:
            return []
        self._lost(now)
        return [Command.DROP_SESSIONS]

    def broke(self, now: float) -> list[Command]:
        """The connection ended. It is made anew, so that no message that was still queued goes before the Hello.

        A connection that ends during the handshake changes nothing: the next Hello is due as before.
        """
        return self._rebuilt(self._lost(now), now) if self.connected else []

    def failed(self, now: float) -> list[Command]:
        """A message could not be sent: the connection is of no use."""
        return self._rebuilt(self._lost(now), now)

    def _rebuilt(self, commands: list[Command], now: float) -> list[Command]:
        """Puts a reconnection before `commands`, so that they are carried out on another socket."""
        self._built_at, self._must_rebuild = now, False
        return [Command.RECONNECT, *commands]

    def _welcomed(self, welcome: Welcome, now: float) -> list[Command]:
        if welcome.version != VERSION:
            what = f"the verify node speaks protocol version {welcome.version}, this draft node {VERSION}"
            raise PeerRefused("version", what, "run the same release of GoodSpeed on both nodes")
        known = self.connected and self.welcome is not None and self.welcome.boot_id == welcome.boot_id
        self.welcome, self.says_goodbye, self.is_silent = welcome, False, False
        self.away_since = self.trouble = self._barred = None
        self._backoff_s = HELLO_S
        self._beat_at = now
        return [] if known else [Command.OPEN_SESSIONS]

    def _lost(self, now: float) -> list[Command]:
        if self.connected:
            self.away_since = now
        self._hello_at = now + self._backoff_s
        return [Command.DROP_SESSIONS, Command.SAY_HELLO]
