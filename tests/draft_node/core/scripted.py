"""An n-gram drafter that expects what a test says, and notes what it was asked; and how sessions, cores begin."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from draft_node.core.actions import Send
from draft_node.core.core import DraftCore
from draft_node.core.drafts.ngrams import NgramDrafter
from draft_node.core.generation import Generation
from draft_node.core.link import VerifyLink
from draft_node.core.session import Session
from goodspeed.ngram.drafting import Continuation
from goodspeed.ngram.history import History
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import OpenSession, Sampling, UpMessage
from tests.fakes import make_hello, make_welcome, session_id

ID = b"0123456789abcdef"
PROMPT = (1, 2, 3)


@dataclass(slots=True)
class ScriptedDrafter(NgramDrafter):
    """Expects `text` from its position on: the text of the session as the test has it, prompt included."""

    history: History = field(default_factory=lambda: History(100, per_user=True))
    text: tuple[int, ...] = ()
    probabilities: float = 0.9  # of every token
    asked: list[tuple[int, int, float]] = field(default_factory=list)  # length of the text, length, least probability

    def draft(self, tokens: Sequence[int], length: int, least_probability: float = 0.0) -> Continuation:
        self.asked.append((len(tokens), length, least_probability))
        expected = self.text[len(tokens) : len(tokens) + length] if self.text[: len(tokens)] == tuple(tokens) else ()
        return Continuation(expected, (self.probabilities,) * len(expected))


def messages_of(actions: Iterable[object]) -> list[UpMessage]:
    return [action.message for action in actions if isinstance(action, Send)]


def opened(session: Session, now: float = 0.0, **terms: Any) -> OpenSession:
    """Connects the session to a verify node of these terms; returns what the verify node is sent."""
    [message] = messages_of(session.connect(now, make_welcome(**terms)))
    assert isinstance(message, OpenSession)
    return message


def request_of(number: int = 1, **changes: Any) -> Generation:
    return replace(Generation(session_id(number), PROMPT, Sampling(seed=number), max_tokens=20), **changes)


def make_link(timeout_s: float = 3.0) -> VerifyLink:
    """A link that is not connected yet."""
    return VerifyLink.begin(make_hello(), timeout_s, now=0.0)


def make_core(timeout_s: float = 3.0, **options: Any) -> DraftCore:
    """A core whose verify node was never there."""
    return DraftCore(make_link(timeout_s), **options)


def welcome_of(boot: str, target: str = "t") -> Welcome:
    return make_welcome(boot_id=boot.encode().ljust(8, b"-"), target_fingerprint=target)
