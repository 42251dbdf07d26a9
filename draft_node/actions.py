"""What a session is asked for (`Request`, `Proposed`) and what it asks for (the actions). Plain data, no rules.

A session's driver carries out every action that an event gave back: it sends, has the draft model propose, or tells
the user.
"""

from typing import TypeAlias

from msgspec import Struct

from goodspeed.messages import MAX_DRAFT, FinishReason, Sampling, UpMessage, Verification


class Request(Struct, frozen=True):
    """What a user asked for: prompt ids and how to go on from them."""

    session_id: bytes
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    verification: Verification = "match"
    max_draft: int = MAX_DRAFT


class Send(Struct, frozen=True):
    """A message for the verify node."""

    message: UpMessage


class Propose(Struct, frozen=True):
    """Have the draft model propose up to `length` tokens after `tokens`; 0 only brings its cache up to date.

    With `ahead` the last of `tokens` are not verified yet, and the proposal begins with a guess of what follows them.
    """

    request: Request
    epoch: int
    round: int
    tokens: tuple[int, ...]
    length: int
    ahead: bool = False


class Proposed(Struct, frozen=True):
    """What came of a Propose; no tokens when the draft model could not."""

    session_id: bytes
    epoch: int
    round: int
    tokens: tuple[int, ...]
    proposal: bytes | None = None
    drafting_s: float = 0.0
    guess: int | None = None  # ahead: the token that `tokens` follow
    odds: float = 1.0  # that all of it is accepted, in the draft model's own view


class Deliver(Struct, frozen=True):
    """Verified tokens for the user, in order, each exactly once."""

    tokens: tuple[int, ...]


class Finish(Struct, frozen=True):
    """The generation is complete."""

    reason: FinishReason


class Fail(Struct, frozen=True):
    """The generation cannot go on; the user is told why."""

    code: str
    what: str


Action: TypeAlias = Send | Propose | Deliver | Finish | Fail
