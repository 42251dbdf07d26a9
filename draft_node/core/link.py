"""The draft node's link to a verify node: handshake, heartbeats, reconnection. No I/O, no clock.

Events in (a message, the time, a failed send), commands out; `core.py` turns the commands into actions.
"""

from dataclasses import dataclass
from enum import Enum

from goodspeed.errors import PeerRefused
from goodspeed.wire.handshake import VERSION, Heartbeat, Hello, Welcome
from goodspeed.wire.messages import DownMessage, Refusal

HELLO_S = 1.0
"""Seconds before an unanswered Hello is sent again; doubles up to MAX_BACKOFF_S."""

MAX_BACKOFF_S = 5.0
REBUILD_S = 10.0
"""Seconds without a received message after which the socket of a link that is away is replaced. An encrypted handshake
and a Hello take five round trips. The socket itself restarts a handshake that takes longer than this."""

MISSED_BEATS = 3
FATAL = frozenset({"version", "tokenizer"})
KEPT_OUT = frozenset({"not_enrolled", "wrong_name", "barred"})
"""Refusals that the verify node's operator, or time, can resolve: retried with backoff."""


class Command(Enum):
    """A link's command to the core."""

    SAY_HELLO = "say_hello"
    OPEN_SESSIONS = "open_sessions"  # the handshake is done
    DROP_SESSIONS = "drop_sessions"  # the verify node is away, or has lost this node's sessions
    RECONNECT = "reconnect"  # rebuild the socket
    BEAT = "beat"  # send a heartbeat


@dataclass(slots=True)
class VerifyLink:
    """Tracks whether the verify node is there, and returns commands to reach it."""

    hello: Hello
    timeout_s: float  # silence after which the verify node is away, but not before MISSED_BEATS heartbeats
    welcome: Welcome | None = None  # the latest one
    away_since: float | None = None  # None while the verify node is there
    says_goodbye: bool = False  # the verify node announced that it stops
    is_silent: bool = False  # the verify node was lost by its silence
    trouble: str | None = None  # why the verify node refuses this node, and what to do; None: not known
    _heard_at: float = 0.0
    _hello_at: float = 0.0
    _backoff_s: float = HELLO_S
    _beat_at: float = 0.0
    _built_at: float = 0.0  # when the socket was built
    _must_rebuild: bool = False  # this socket will not connect
    _barred: str | None = None  # reason of the latest `barred` refusal; None after another of KEPT_OUT, or a Welcome

    @classmethod
    def begin(cls, hello: Hello, timeout_s: float, now: float) -> "VerifyLink":
        return cls(hello, timeout_s, away_since=now, _heard_at=now, _hello_at=now, _built_at=now)

    @property
    def connected(self) -> bool:
        return self.away_since is None

    def away_s(self, now: float) -> float:
        """Returns the seconds since the verify node was lost; 0 while it is there."""
        return 0.0 if self.away_since is None else now - self.away_since

    def absence(self, now: float) -> str:
        """Describes the absence to users, without the verify node's address or its reason for a refusal."""
        seconds = max(1, round(self.away_s(now)))
        if self.trouble:
            return f"the verify node has not let this draft node in for {seconds} s"
        return f"the verify node has been away for {seconds} s"

    @staticmethod
    def absence_at(endpoint: str, timeout_s: float, trouble: str | None) -> str:
        """Tells the operator that there was no verify node for `timeout_s`: where, why, and what to do.

        trouble: as in `Links.trouble`.
        """
        if trouble:
            who = "no verify node" if ", " in endpoint else f"the verify node at {endpoint}"
            return (
                f"{who} has {'' if ', ' in endpoint else 'not '}let this draft node in for {timeout_s:g} s: {trouble}"
            )
        what = f"the verify node at {endpoint} has been away for {timeout_s:g} s"
        address = "check the address (that of its --bind, not of its --http)"
        return f"{what}; start goodspeed-verify there, {address}, or give a longer --connect-timeout-s while it loads"

    def heard(self, message: DownMessage, now: float) -> list[Command]:
        """Handles a message; any message is a sign of life. Raises PeerRefused for a permanent refusal."""
        self._heard_at = now
        if isinstance(message, Welcome):
            return self._welcomed(message, now)
        if isinstance(message, Refusal) and message.session_id is None:
            if message.code in FATAL:
                self.trouble = f"{message.what} ({message.code}); {message.what_to_do}"
                raise PeerRefused(message.code, message.what, message.what_to_do)
            if message.code in KEPT_OUT:
                self.trouble = f"{message.what} ({message.code}); {message.what_to_do}"
                self._barred = self.trouble if message.code == "barred" else None
            if message.code in KEPT_OUT | {"hello_first"} and self.connected:
                return self._lost(now)
            if message.code == "draining" and self.connected:
                self.says_goodbye = True
                self._lost(now)
                return [Command.DROP_SESSIONS]  # an orderly stop: the next Hello can wait for its backoff
        if isinstance(message, Heartbeat) and self.welcome and message.boot_id != self.welcome.boot_id:
            return self._lost(now) if self.connected else []
        return []

    def tick(self, now: float) -> list[Command]:
        """Repeats an unanswered Hello, detects silence, and sends heartbeats."""
        if self.connected:
            beat_s = self.welcome.heartbeat_s if self.welcome else HELLO_S
            if now - self._heard_at > max(self.timeout_s, MISSED_BEATS * beat_s):
                self.is_silent = True
                return self._rebuilt(self._lost(now), now)
            if now < self._beat_at:
                return []
            self._beat_at = now + beat_s
            return [Command.BEAT]
        if now < self._hello_at:
            return []
        self._hello_at = now + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)
        is_unheard = now - max(self._heard_at, self._built_at) > REBUILD_S
        if is_unheard and not (self._barred or self._must_rebuild):
            self.trouble = None  # an earlier refusal is no reason for its silence
        if self._must_rebuild or is_unheard:
            return self._rebuilt([Command.SAY_HELLO], now)
        return [Command.SAY_HELLO]

    def turned_away(self, why: str, now: float) -> list[Command]:
        """Handles a refused connection. The next Hello goes out on a new socket, when its backoff is over."""
        self.trouble, self._must_rebuild = self._barred or why, True
        if not self.connected:
            return []
        self._lost(now)
        return [Command.DROP_SESSIONS]

    def broke(self, now: float) -> list[Command]:
        """Returns the commands that rebuild a connection that ended or could not send: no message precedes the Hello.

        A connection that ends during the handshake changes nothing: the next Hello is due as before.
        """
        return self._rebuilt(self._lost(now), now) if self.connected else []

    def _rebuilt(self, commands: list[Command], now: float) -> list[Command]:
        """Returns `commands` after a reconnection, so that they are carried out on the new socket."""
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
