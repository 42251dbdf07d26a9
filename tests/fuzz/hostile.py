"""The words of a hostile peer: each rule of the wire broken, one or several at a time, out of a seed.

One `Hostile` makes the messages of many connections; each has its own `Me`, which learns from the answers, so that what
is said of its own sessions is right but for what is meant to be wrong. `overhear` gives it what honest draft nodes
said: their sessions are known to it, and it says the same again.
"""

import string
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import msgspec

from goodspeed.errors import ProtocolError
from goodspeed.exact.proposal_bytes import certain
from goodspeed.slo.objectives import LONGEST_S, SHORTEST_S, Objectives
from goodspeed.wire.codec import decode_down, decode_up
from goodspeed.wire.fields import MAX_DRAFT
from goodspeed.wire.generation import Constraint, LogitRules, TokenBias
from goodspeed.wire.handshake import VERSION, Heartbeat, Hello, Welcome
from goodspeed.wire.messages import Ack, Close, Draft, OpenSession, Refusal, Sampling, Slo, UpMessage, Verdict
from tests.fuzz.damage import damaged, wrong_fields

Frames: TypeAlias = list[bytes]
LARGE = 64 << 20
encode = msgspec.msgpack.encode


@dataclass
class Own:
    """A session of a hostile peer, as far as it was told."""

    opened: OpenSession
    tokens: list[int]
    may_draft: int = 0


@dataclass
class Me:
    """One connection: its name, and what came back on it."""

    name: str
    boot_id: bytes
    welcome: Welcome | None = None
    sessions: dict[bytes, Own] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)

    def hear(self, data: bytes) -> None:
        """An answer: counted by the code of a refusal, or by its kind."""
        try:
            message = decode_down(data, LARGE)
        except ProtocolError:
            self.answers["not understood"] += 1
            return
        self.answers[message.code if isinstance(message, Refusal) else type(message).__name__] += 1
        if isinstance(message, Welcome):
            self.welcome = message
        elif isinstance(message, Verdict) and (own := self.sessions.get(message.session_id)):
            own.tokens[message.base_len :] = message.tokens
            own.may_draft = message.may_draft
            if message.finish_reason:
                del self.sessions[message.session_id]


class Hostile:
    """Messages for `Me`, as frames."""

    def __init__(self, seed: int, *, tokenizer: str, with_keys: bool = False) -> None:
        """with_keys: replays of an honest Hello, too. Without keys whoever says a client's name is that client."""
        self.random = Random(seed)
        self.tokenizer = tokenizer
        self.with_keys = with_keys
        self.overheard: deque[tuple[UpMessage, bytes]] = deque(maxlen=400)
        self.kinds: dict[str, tuple[int, Callable[[Me], Frames]]] = {
            "garbage": (80, self._garbage),
            "damaged": (160, self._damaged),
            "wrong fields": (150, self._wrong_fields),
            "too large": (1, self._too_large),
            "many frames": (30, self._many_frames),
            "wrong Hello": (30, self._wrong_hello),
            "Hello": (20, self._hello),
            "downwards": (20, self._downwards),
            "replayed": (100, self._replayed),
            "unknown session": (80, self._unknown_session),
            "another's session": (120, self._anothers_session),
            "own session": (150, self._own_session),
            "taken": (15, self._taken),
            "wrong Open": (50, self._wrong_open),
            "Open": (6, self._open),
            "heartbeat": (20, self._heartbeat),
        }
        self._names = list(self.kinds)
        self._weights = [weight for weight, _ in self.kinds.values()]

    def new(self, name: str | None = None) -> Me:
        """A connection that was never heard of, by this name or a new one."""
        letters = string.ascii_letters + string.digits + "._-"
        return Me(name or "h" + "".join(self.random.choices(letters, k=self.random.choice((1, 8, 63)))),
                  self.random.randbytes(self.random.choice((8, 16))))  # fmt: skip

    def overhear(self, data: bytes) -> None:
        """Honest bytes."""
        message = decode_up(data, LARGE)
        if not isinstance(message, Heartbeat) and (self.with_keys or not isinstance(message, Hello)):
            self.overheard.append((message, data))

    def next(self, me: Me) -> tuple[str, Frames]:
        """Returns which kind of message, and its frames."""
        (kind,) = self.random.choices(self._names, self._weights)
        return kind, self.kinds[kind][1](me)

    def identity(self) -> bytes:
        """A ZeroMQ routing id with odd bytes in it; those that begin with zero are ZeroMQ's own."""
        ids = (b"\n\x1b[31m", b"\xff" * 255, b"d" + bytes(8), b"d", self.random.randbytes(16), b"'\"<>&\x7f")
        chosen = self.random.choice(ids)
        return (chosen if chosen[0] else b"!" + chosen)[:246] + self.random.randbytes(8)

    # -- bytes -----------------------------------------------------------------------------------------------------

    def _garbage(self, me: Me) -> Frames:
        return [self.random.randbytes(self.random.choice((0, 1, 3, 20, 300)))]

    def _damaged(self, me: Me) -> Frames:
        return [damaged(encode(self._right(me)), self.random)]

    def _wrong_fields(self, me: Me) -> Frames:
        return [wrong_fields(self._right(me), self.random)]

    def _too_large(self, me: Me) -> Frames:
        """Refused by name, or so large that ZeroMQ cuts the connection."""
        if me.welcome is None:
            return self._hello(me)
        margin = self.random.randint(1, 60_000) if self.random.random() < 0.8 else 1 << 20
        return [b"\xc4" * (me.welcome.max_message_bytes + margin)]

    def _many_frames(self, me: Me) -> Frames:
        number = self.random.randint(2, 20)
        frames = [self.random.choice((b"", encode(self._right(me)), b"\xc1")) for _ in range(number)]
        return [*frames[:-1], b"" if self.random.random() < 0.5 else frames[-1]]

    # -- handshakes ------------------------------------------------------------------------------------------------

    def _hello(self, me: Me) -> Frames:
        return [encode(self.greeting(me))]

    def greeting(self, me: Me) -> Hello:
        return Hello(VERSION, me.name, me.boot_id, self.tokenizer, self.random.choice(("hostile", "")))

    def _wrong_hello(self, me: Me) -> Frames:
        values = (
            ["hello", VERSION + 1, "from the future"],
            ["hello", 0],
            ["hello", VERSION, "", b"", ""],
            ["hello", VERSION, me.name, me.boot_id, "another"],
            ["welcome", 9],
            ["refusal", "version", "go"],
        )
        return [encode(self.random.choice(values))]

    def _heartbeat(self, me: Me) -> Frames:
        return [encode(Heartbeat(self.random.choice((me.boot_id, bytes(8)))))]

    def _downwards(self, me: Me) -> Frames:
        session_id = self._session_id()
        kinds = (Verdict(session_id, 1, 3, (4,), 0, 0, 4), Refusal("failed", "no", "go away", session_id, 1))
        return [encode(self.random.choice(kinds))]

    # -- sessions --------------------------------------------------------------------------------------------------

    def _replayed(self, me: Me) -> Frames:
        """Repeats an honest draft node, byte for byte; its OpenSession rarely, since each may be a text to write."""
        for _ in range(4):
            if self.overheard:
                message, data = self.random.choice(self.overheard)
                if not isinstance(message, OpenSession) or self.random.random() < 0.02:
                    return [data]
        return self._garbage(me)

    def _unknown_session(self, me: Me) -> Frames:
        return [encode(self._about(self.random.randbytes(16)))]

    def _anothers_session(self, me: Me) -> Frames:
        return [encode(self._about(self._session_id()))]

    def _own_session(self, me: Me) -> Frames:
        """Nearly right: of a session that is open, or will be."""
        if not me.sessions:
            return self._unknown_session(me)
        own = self.random.choice(list(me.sessions.values()))
        draft = self._draft(own)
        wrong: dict[str, Any] = {
            "epoch": max(0, draft.epoch + self.random.choice((-1, 1, 1 << 61))),
            "base_len": self.random.choice((0, draft.base_len + 1, 1 << 61)),
            "tokens": self.random.choice(((5,) * MAX_DRAFT, (5,) * (MAX_DRAFT + 1), ((1 << 31) - 1,), ())),
            "probabilities": self.random.choice((b"", bytes(MAX_DRAFT), self.random.randbytes(len(draft.tokens)))),
            "source": self.random.choice(("model", "ngram", "self")),
            "parents": self.random.choice((b"", bytes(len(draft.tokens)), b"\xff" * len(draft.tokens))),
            "complete": self.random.random() < 0.5,
            "proposal": self.random.choice((None, b"", b"\x01\xff\xff\xff\xff", self.random.randbytes(40))),
        }
        names = self.random.sample(list(wrong), self.random.choice((1, 1, 2, 3)))
        ack = Ack(draft.session_id, draft.epoch, self.random.choice((0, 1 << 61, len(own.tokens))))
        values = msgspec.structs.asdict(draft) | {name: wrong[name] for name in names}
        spoilt = ["draft", *values.values()]  # no Draft: that would be refused here, and not there
        return [encode(ack if self.random.random() < 0.2 else spoilt)]

    def _taken(self, me: Me) -> Frames:
        """Returns an honest message."""
        return [encode(self._right(me))]

    def _open(self, me: Me) -> Frames:
        """A short text; with a rule and options of all kinds."""
        opened = self._new_open(max_tokens=self.random.choice((1, 6, 30)))
        me.sessions[opened.session_id] = Own(opened, list(opened.prompt))
        return [encode(opened)]

    def _wrong_open(self, me: Me) -> Frames:
        wrong: list[dict[str, object]] = [
            {"prompt": ()},
            {"prompt": (1,) * 3000},
            {"prompt": ((1 << 31) - 1,)},
            {"committed": (1,) * 9, "max_tokens": 9},
            {"max_tokens": 2, "min_tokens": 3},
            {"stop_ids": tuple(range(64)), "prompt": ()},
            {"num_logprobs": 20, "prompt": ()},
            {"logit_rules": LogitRules(logit_bias=(TokenBias((1 << 31) - 1, 1.0),))},
            {"constraint": Constraint("json_schema", '{"type": "strin')},
            {"constraint": Constraint("regex", "(" * self.random.randint(1, 400))},
            {"session_id": self._session_id(), "epoch": self.random.choice((0, 1, 2, 1 << 61))},
        ]
        return [encode(self._new_open(**self.random.choice(wrong)))]

    def _new_open(self, **fields: object) -> OpenSession:
        sampling = Sampling(temperature=self.random.choice((0.0, 1.0)), seed=self.random.getrandbits(62))
        values: dict[str, object] = {
            "session_id": self.random.randbytes(16),
            "epoch": 1,
            "prompt": tuple(self.random.choices(range(300), k=self.random.randint(1, 12))),
            "committed": (),
            "sampling": sampling,
            "max_tokens": 4,
            "verification": self.random.choice(("match", "ratio")),
            "slo": self._slo(),
            "otherwise": self.random.choice(("best_effort", "refuse")),
            "logit_rules": self.random.choice((None, LogitRules(2.0, -2.0, 0.01, 1.0, (TokenBias(1, 100.0),)))),
        }
        return OpenSession(**{**values, **fields})  # type: ignore[arg-type]

    def _slo(self) -> Slo | None:
        """Nothing, what nobody can keep, or what costs nothing; asked for long ago, or just now."""
        if self.random.random() < 0.5:
            return None
        limits = (None, SHORTEST_S, 0.05, LONGEST_S)
        tier = self.random.choice(("", "urgent", "unheard of"))
        objectives = Objectives(self.random.choice(limits), self.random.choice(limits), tier)
        return Slo(objectives, self.random.choice((0.0, 1.0, LONGEST_S)), self.random.choice((None, 0.0, LONGEST_S)))

    def _draft(self, own: Own) -> Draft:
        """As long as it may be, by the rule of its session; of random tokens, so that nearly none is accepted."""
        tokens = tuple(self.random.choices(range(300), k=self.random.randint(0, own.may_draft)))
        proposal = certain(tokens) if own.opened.verification == "ratio" else None
        is_complete = self.random.random() < 0.8
        return Draft(own.opened.session_id, 1, len(own.tokens), tokens, complete=is_complete, proposal=proposal)

    def _right(self, me: Me) -> UpMessage:
        """Some message with nothing wrong in it."""
        if me.sessions and self.random.random() < 0.6:
            own = self.random.choice(list(me.sessions.values()))
            if self.random.random() < 0.5:
                return Ack(own.opened.session_id, 1, len(own.tokens))
            return self._draft(own)
        if self.random.random() < 0.2:
            return self.greeting(me)
        return self._about(self.random.randbytes(16))

    def _about(self, session_id: bytes) -> UpMessage:
        number, epoch = self.random.randint(0, 9), self.random.choice((0, 1, 1, 2))
        match self.random.randrange(3):
            case 0:
                return Draft(session_id, epoch, number, tuple(range(number)))
            case 1:
                return Ack(session_id, epoch, number)
        return Close(session_id, epoch)

    def _session_id(self) -> bytes:
        """The id of an honest session, where one is known."""
        known = [message.session_id for message, _ in self.overheard if hasattr(message, "session_id")]
        return self.random.choice(known) if known else self.random.randbytes(16)
