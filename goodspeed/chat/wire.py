"""What a node says, checked as it is read: only what a conversation needs, all else is left out."""

from msgspec import Struct


class Model(Struct, frozen=True):
    id: str


class ModelList(Struct, frozen=True):
    data: tuple[Model, ...]


class Span(Struct, frozen=True):
    """A part of an answer by where it came from."""

    text: str
    accepted: bool


class Marked(Struct, frozen=True):
    spans: tuple[Span, ...] = ()


class Delta(Struct, frozen=True):
    content: str | None = None


class Choice(Struct, frozen=True):
    delta: Delta
    finish_reason: str | None = None
    goodspeed: Marked | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """All of the text; as the target's own where the node tells nothing else."""
        text = self.delta.content or ""
        told = self.goodspeed.spans if self.goodspeed is not None else ()
        if "".join(span.text for span in told) == text:
            return told
        return (Span(text, accepted=False),)


class Speculation(Struct, frozen=True):
    rounds: int
    drafted: int
    accepted: int


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


class Refusal(Struct, frozen=True):
    """The body of every answer but 200."""

    error: Problem
