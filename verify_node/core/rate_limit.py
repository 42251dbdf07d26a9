"""Limits senders that misbehave, and finally bars them. No I/O, no clock of its own, no torch.

An unacceptable message is refused with a code (`refusals.py`). A sender's first refusals are each answered; after too
many, refusals are only counted; after more, the sender is barred: all its messages are ignored for a while. Each sender
has three leaky buckets: of offences, of messages of any kind, and of verdicts that it had repeated. The third bars
nobody: a stalled connection makes an honest draft node ask again for what is on its way.

Honest draft nodes never come near these limits. On a bad connection they repeat old messages, so a late message, or one
based on a wrong guess, is no offence. It still counts as a message, but the message limit exceeds what a sender's
sessions can need.

A sender is identified by its key, or where there are no keys by the name of its connection, which it may change at
will. Memory is bounded however many names appear.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from goodspeed.wire.fields import BURST_S, LEAST_SESSIONS, SESSION_MESSAGES_PER_S, TOKENS_PER_MESSAGE, VERDICT_MESSAGES

OFFENCES: Final = frozenset(
    {
        "malformed",
        "too_large",
        "not_enrolled",
        "wrong_name",
        "not_owner",
        "vocabulary",
        "proposal",
        "unsupported",
        "not_acknowledged",
    }
)
"""Codes of refusals that are offences. The others are none: a bad connection, a restart, a full verify node, a user's
prompt or a failing target model may cause them, without misbehaviour."""

OFFENCES_PER_S: Final = 1.0
"""Offences forgotten per second: a misconfigured draft node, retrying every five seconds at most, accumulates none."""

ANSWERED: Final = 20.0
"""Offences that are answered individually: enough for developers of a new implementation to find their errors."""

BARRED: Final = 100.0
"""Offences at which a sender is barred: more than a client's sessions by default, in case all of them fail at once."""

REPEATED_TOKENS: Final = 16
"""Tokens of a repeated verdict that count as one message, and are forgotten as fast."""

BAR_S: Final = 30.0
MAX_BAR_S: Final = 600.0
"""Bars last BAR_S seconds, doubled for each further bar within MAX_BAR_S after the previous one; at most MAX_BAR_S."""

MAX_SENDERS: Final = 4096
"""Senders remembered; beyond that, the ones silent for longest are forgotten."""


class Treatment(Enum):
    ANSWERED = "answered"  # each refusal is sent
    COUNTED = "counted"  # refusals are counted, not sent
    BARRED = "barred"  # it has just exceeded a limit


@dataclass(slots=True)
class Buckets:
    """One sender's buckets at time `at`, and its bars."""

    at: float
    offences: float = 0.0
    messages: float = 0.0
    repeated: float = 0.0  # verdicts repeated to it, each by its length
    num_bars: int = 0  # in a row
    barred_until: float = 0.0


class RateLimiter:
    """Counts each sender's messages and offences, and bars senders beyond the limits."""

    def __init__(self, max_client_sessions: int) -> None:
        self.messages_per_s = SESSION_MESSAGES_PER_S * max(LEAST_SESSIONS, max_client_sessions)
        self.max_messages = BURST_S * self.messages_per_s
        self.barred: dict[bytes, float] = {}  # until when, by sender; the receiver of messages checks this first
        self._senders: dict[bytes, Buckets] = {}  # by sender, the latest active last

    @property
    def num_senders(self) -> int:
        return max(len(self._senders), len(self.barred))

    def heard(self, sender: bytes, now: float, num_tokens: int = 0) -> bool:
        """Counts a message of any kind; True if its sender exceeds the limit. num_tokens: of the text that it opens."""
        buckets = self._buckets_of(sender, now)
        buckets.messages += 1.0 + num_tokens / TOKENS_PER_MESSAGE
        return buckets.messages > self.max_messages

    def earned(self, sender: bytes) -> None:
        """Subtracts the messages that a round's verdict earns the sender."""
        if buckets := self._senders.get(sender):
            buckets.messages = max(0.0, buckets.messages - VERDICT_MESSAGES)

    def repeats(self, sender: bytes, num_tokens: int) -> bool:
        """Counts a verdict of num_tokens tokens that is repeated to the sender.

        False if too much was repeated lately: the verdict is not sent, and the sender asks again. A long verdict counts
        as half of the bucket at most, so that it can be repeated.
        """
        buckets = self._senders.get(sender)
        cost = min(num_tokens / REPEATED_TOKENS, self.max_messages / 2)
        if buckets is None or buckets.repeated + cost > self.max_messages:
            return buckets is None
        buckets.repeated += cost
        return True

    def refused(self, sender: bytes, code: str, now: float) -> Treatment:
        """Counts the offence of a message refused with this code; `heard` has counted the message already."""
        buckets = self._buckets_of(sender, now)
        buckets.offences += code in OFFENCES
        if buckets.offences > BARRED:
            return Treatment.BARRED
        limited = buckets.offences > ANSWERED or buckets.messages > self.max_messages / 2
        return Treatment.COUNTED if limited else Treatment.ANSWERED

    def bar(self, sender: bytes, now: float) -> float:
        """Bars the sender from now on; returns for how many seconds. Another bar soon afterwards is twice as long."""
        buckets = self._buckets_of(sender, now)
        again = buckets.num_bars and now - buckets.barred_until < MAX_BAR_S
        buckets.num_bars = buckets.num_bars + 1 if again else 1
        buckets.offences = buckets.messages = 0.0
        seconds = min(BAR_S * 2.0 ** min(buckets.num_bars - 1, 16), MAX_BAR_S)
        buckets.barred_until = self.barred[sender] = now + seconds
        if len(self.barred) > MAX_SENDERS:
            del self.barred[min(self.barred, key=self.barred.__getitem__)]
        return seconds

    def forgive(self, sender: bytes) -> None:
        """Forgets a sender's offences and its bar: what was on its way while its key was away must not keep it out."""
        self.barred.pop(sender, None)
        self._senders.pop(sender, None)

    def expire(self, now: float) -> None:
        for sender in [sender for sender, until in self.barred.items() if until <= now]:
            del self.barred[sender]

    def _buckets_of(self, sender: bytes, now: float) -> Buckets:
        buckets = self._senders.pop(sender, None)
        if buckets is None:
            buckets = Buckets(now)
            if len(self._senders) >= MAX_SENDERS:
                del self._senders[next(iter(self._senders))]
        self._senders[sender] = buckets
        seconds, buckets.at = max(0.0, now - buckets.at), now
        buckets.offences = max(0.0, buckets.offences - OFFENCES_PER_S * seconds)
        buckets.messages = max(0.0, buckets.messages - self.messages_per_s * seconds)
        buckets.repeated = max(0.0, buckets.repeated - self.messages_per_s * seconds)
        return buckets
