"""An n-gram drafter that expects what a test says, and notes what it was asked; and how a session is opened."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from draft_node.core.actions import Send
from draft_node.core.drafts.ngrams import NgramDrafter
from draft_node.core.session import Session
from goodspeed.ngram.drafting import Continuation
from goodspeed.ngram.history import History
from goodspeed.wire.messages import OpenSession
from tests.fakes import make_welcome


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


def opened(session: Session, now: float = 0.0, **terms: Any) -> OpenSession:
    """Connects the session to a verify node of these terms; returns what the verify node is sent."""
    actions = session.connect(now, make_welcome(**terms))
    [message] = [action.message for action in actions if isinstance(action, Send)]
    assert isinstance(message, OpenSession)
    return message
