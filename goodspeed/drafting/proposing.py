"""A request to a draft model, and its answer. Plain data."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from goodspeed.drafting.tree import Nodes
from goodspeed.wire.fields import MAX_DRAFT, Verification
from goodspeed.wire.messages import Constraint, LogitRules, Sampling


class Asked(Protocol):
    """The members of a text that draft models read; `OpenSession` and a draft node's `Generation` have them."""

    @property
    def session_id(self) -> bytes: ...

    @property
    def prompt(self) -> Sequence[int]: ...

    @property
    def sampling(self) -> Sampling: ...

    @property
    def stop_ids(self) -> tuple[int, ...]: ...

    @property
    def min_tokens(self) -> int: ...  # output tokens before any of stop_ids may be drawn

    @property
    def verification(self) -> Verification: ...

    @property
    def logit_rules(self) -> LogitRules | None: ...

    @property
    def constraint(self) -> Constraint | None: ...

    @property
    def cache_salt(self) -> bytes: ...  # texts with the same salt share cached prefixes; empty: shares with no other


def banned_at(asked: Asked, position: int) -> tuple[int, ...]:
    """Returns the tokens that may not be drawn at this position of the text."""
    return asked.stop_ids if position < len(asked.prompt) + asked.min_tokens else ()


class Propose(Struct, frozen=True):
    """Have the draft model propose up to `length` tokens after `tokens`; length 0 only updates its KV cache.

    Under the match rule the proposal extends `tree`, the nodes drafted before, at its likeliest leaf. With
    `wants_alternatives` it also contains alternatives and extends other likely leaves. The proposal ends when every
    leaf's path probability is below `least_probability`.
    """

    request: Asked
    epoch: int
    round: int
    tokens: tuple[int, ...]
    length: int  # on one path
    least_probability: float = 0.0
    tree: Nodes = Nodes()
    max_depth: int = MAX_DRAFT  # most drafted tokens on one path, those of `tree` included
    wants_alternatives: bool = False
    calibrated: Sequence[float] | None = None
    """Probability of acceptance, by the code of the claimed one (`wire.probabilities`); None: as claimed."""
    prefix_scope: bytes | None = None  # texts of one scope share cached prefixes; None: texts with the request's salt

    @property
    def shares(self) -> bool:
        """True if other texts may use its cached prefix."""
        return bool(self.request.cache_salt if self.prefix_scope is None else self.prefix_scope)

    @property
    def scope(self) -> bytes:
        """Scope of prefix sharing; without a salt, the session alone."""
        if self.prefix_scope is not None:
            return self.prefix_scope
        salt = self.request.cache_salt
        return b"salt\0" + salt if salt else b"session\0" + self.request.session_id


class Proposed(Struct, frozen=True):
    """The answer to a Propose: new nodes of its tree; without tokens if the draft model failed."""

    session_id: bytes
    epoch: int
    round: int
    tokens: tuple[int, ...]
    proposal: bytes | None = None
    probabilities: tuple[float, ...] | None = None  # match rule: acceptance probabilities, given the parent
    parents: tuple[int, ...] | None = None
    """Index of each node's parent; indexes count the Propose's tree first, then these nodes. None: a chain after the
    likeliest leaf."""
