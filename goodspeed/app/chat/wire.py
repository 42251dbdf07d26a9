"""The parts of a node's HTTP responses that a conversation needs, checked as they are decoded."""

from msgspec import Struct


class Model(Struct, frozen=True):
    id: str


class ModelList(Struct, frozen=True):
    data: tuple[Model, ...]


class Span(Struct, frozen=True):
    """A part of an answer, with the model that wrote it."""

    text: str
    accepted: bool
    local: bool = False  # the draft model wrote it alone
    thought: bool = False  # it is no part of the answer


class Marked(Struct, frozen=True):
    spans: tuple[Span, ...] | None = None
    local: bool | None = None


class Delta(Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None


class Choice(Struct, frozen=True):
    delta: Delta
    finish_reason: str | None = None
    goodspeed: Marked | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """Returns all of the text in spans; one span of the target's where the node marks none."""
        text, told = self.delta.content or "", self.goodspeed or Marked()
        if told.spans is not None and "".join(span.text for span in told.spans) == text:
            return told.spans
        return (Span(text, accepted=False, local=bool(told.local)),)

    @property
    def thoughts(self) -> tuple[Span, ...]:
        """Returns what the model thinks, as one span."""
        text = self.delta.reasoning_content
        return (Span(text, accepted=False, thought=True),) if text else ()


class KeptSlo(Struct, frozen=True):
    """What became of an answer's service level."""

    tier: str | None
    ttft_ms: float | None
    tpot_ms: float | None
    attained: bool
    promised: bool | None = None  # a node of an earlier release does not say


class Speculation(Struct, frozen=True):
    rounds: int
    drafted: int
    accepted: int
    local: int = 0
    slo: KeptSlo | None = None


class Usage(Struct, frozen=True):
    completion_tokens: int
    goodspeed: Speculation | None = None


class Problem(Struct, frozen=True):
    message: str
    code: str | int | None = None


class Chunk(Struct, frozen=True):
    """One event of a stream."""

    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    error: Problem | None = None


class ErrorBody(Struct, frozen=True):
    """The body of every response whose status is not 200."""

    error: Problem
