"""Limits senders that misbehave, and bars them in the end. No I/O, no clock of its own, no torch.

An unacceptable message is refused with a code (`checks.py`). A sender is told each of its first refusals; after too
many they are only counted; after more the sender is barred, and all its messages are ignored for a while. Each sender
has two leaky buckets: one of offences, one of messages of any kind.

Honest draft nodes never come near these limits. On a bad line they repeat old messages, so a message that comes too
late or rests on a wrong guess weighs nothing. It still costs a message, but a sender may send more than its sessions
can need.

Senders are told apart by their key, or where there are no keys by the name of their connection, which they may change
at will. Memory is bounded whatever names come.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

OFFENCES: Final[dict[str, float]] = dict.fromkeys(
    (
        "malformed",
        "too_large",
        "not_enrolled",
        "wrong_name",
        "not_owner",
        "vocabulary",
        "proposal",
        "unsupported",
        "not_acknowledged",
    ),
    1.0,
)
"""Offences that a refusal counts as, by code. All other codes count as none: a bad line, a restart, a full verify node,
a user's prompt or a failing target model cause them without anybody's fault."""

OFFENCES_PER_S: Final = 1.0
"""Offences forgotten per second. A wrongly configured draft node asks once in five seconds at most, so has none."""

ANSWERED: Final = 20.0
"""Offences that are answered one by one: enough for whoever tries a new implementation to learn what is wrong."""

BARRED: Final = 100.0
"""Offences at which the sender is barred: more than a client has sessions by default, should all err at once."""

SESSION_MESSAGES_PER_S: Final = 4.0
"""Messages that a session may cost without earning them: it says two at most (an Ack and a
draft), and repeats them once a second at first, then ever more rarely down to once in 8 s."""

VERDICT_MESSAGES: Final = 8.0
"""Messages that a verdict earns its receiver: an Ack and up to six drafts, each at least twice as long as the one
before or the last, are said to it, and some may come twice."""

BURST_S: Final = 20.0
"""So many seconds' worth of messages may come at once: what a line held back, or all sessions opened again."""

LEAST_SESSIONS: Final = 64
TOKENS: Final = 4096
"""An opened session costs one message more for so many tokens of its text, as it takes that much longer to read."""

BAR_S: Final = 30.0
MAX_BAR_S: Final = 600.0
"""A bar lasts for BAR_S, and twice as long as the last one whenever that was less than MAX_BAR_S ago."""

MAX_SENDERS: Final = 4096
"""Senders remembered; of more, those that were silent for longest are forgotten."""


class Stage(Enum):
    """Treatment of a sender."""

    ANSWERED = "answered"  # each refusal is told
    COUNTED = "counted"  # refusals are counted, and cost no answer
    BARRED = "barred"  # it has just gone too far


@dataclass(slots=True)
class Record:
    """One sender's buckets, as they were at a time."""

    at: float
    offences: float = 0.0
    messages: float = 0.0
    num_bars: int = 0  # in a row
    barred_until: float = 0.0


class RateLimiter:
    """Counts what each sender says, and bars whoever goes too far."""

    def __init__(self, max_client_sessions: int) -> None:
        self.messages_per_s = SESSION_MESSAGES_PER_S * max(LEAST_SESSIONS, max_client_sessions)
        self.max_messages = BURST_S * self.messages_per_s
        self.barred: dict[bytes, float] = {}  # until when; whoever hears messages looks here first
        self.num_bars = 0  # since the start
        self._records: dict[bytes, Record] = {}  # whoever spoke last stands last

    @property
    def num_senders(self) -> int:
        """Senders that are remembered."""
        return max(len(self._records), len(self.barred))

    def heard(self, sender: bytes, now: float, num_tokens: int = 0) -> Stage:
        """A message of any kind; num_tokens: of the text that it brings along."""
        record = self._record(sender, now)
        record.messages += 1.0 + num_tokens / TOKENS
        return Stage.BARRED if record.messages > self.max_messages else Stage.ANSWERED

    def earned(self, sender: bytes, num_verdicts: int = 1) -> None:
        """A round answered the sender with verdicts: subtracts the messages that these earn."""
        if record := self._records.get(sender):
            record.messages = max(0.0, record.messages - VERDICT_MESSAGES * num_verdicts)

    def charge(self, sender: bytes, num_messages: float) -> None:
        """Adds the cost, in messages, of an answer that the sender asked for."""
        if record := self._records.get(sender):
            record.messages += num_messages

    def refused(self, sender: bytes, code: str, now: float) -> Stage:
        """A message of the sender, which `heard` has counted already, was refused with this code."""
        record = self._record(sender, now)
        record.offences += OFFENCES.get(code, 0.0)
        if record.offences > BARRED:
            return Stage.BARRED
        limited = record.offences > ANSWERED or record.messages > self.max_messages / 2
        return Stage.COUNTED if limited else Stage.ANSWERED

    def bar(self, sender: bytes, now: float) -> float:
        """Ignores the sender from now on; returns for how many seconds. A bar soon after it is twice as long."""
        record = self._record(sender, now)
        again = record.num_bars and now - record.barred_until < MAX_BAR_S
        record.num_bars = record.num_bars + 1 if again else 1
        record.offences = record.messages = 0.0
        seconds = min(BAR_S * 2.0 ** min(record.num_bars - 1, 16), MAX_BAR_S)
        record.barred_until = self.barred[sender] = now + seconds
        if len(self.barred) > MAX_SENDERS:
            del self.barred[min(self.barred, key=self.barred.__getitem__)]
        self.num_bars += 1
        return seconds

    def expire(self, now: float) -> None:
        """Lifts the bars whose time is over."""
        for sender in [sender for sender, until in self.barred.items() if until <= now]:
            del self.barred[sender]

    def _record(self, sender: bytes, now: float) -> Record:
        record = self._records.pop(sender, None)
        if record is None:
            record = Record(now)
            if len(self._records) >= MAX_SENDERS:
                del self._records[next(iter(self._records))]
        self._records[sender] = record
        seconds, record.at = max(0.0, now - record.at), now
        record.offences = max(0.0, record.offences - OFFENCES_PER_S * seconds)
        record.messages = max(0.0, record.messages - self.messages_per_s * seconds)
        return record
