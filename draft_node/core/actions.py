"""Actions of sessions and of the core, and `Statistics`. Plain data.

A session's actions concern its user, the draft model or the link. `DraftCore` wraps actions for the user in `Tell`,
with the session id, and adds actions that concern the connection. The driver carries out all actions of an event in
order.
"""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from msgspec import Struct

from draft_node.core.verify_nodes import Address
from goodspeed.drafting.proposing import Propose
from goodspeed.drafting.sources import Source, by_source
from goodspeed.wire.fields import FinishReason
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import (
    TokenLogprobs,
    UpMessage,
    Verdict,
)


class Send(Struct, frozen=True):
    """Send a message on one of the links to verify nodes."""

    message: UpMessage
    link: int = 0


class Deliver(Struct, frozen=True):
    """Deliver verified tokens to the user, in order, each exactly once, with the target's logprobs if requested."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, or empty
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None  # once, with the first tokens or the end, if requested


class Finish(Struct, frozen=True):
    """The generation is complete."""

    reason: FinishReason


class Fail(Struct, frozen=True):
    """The generation cannot go on; the user gets the reason."""

    code: str
    what: str


@dataclass(slots=True)
class Statistics:
    """Counts of one session, from its verdicts."""

    num_rounds: int = 0
    num_drafts: int = 0  # verified, with at least one token
    num_drafted: int = 0
    num_accepted: int = 0
    num_tokens: int = 0
    num_refusals: int = 0
    num_resends: int = 0
    num_cached: int = 0  # prompt tokens found in the verify node's prefix cache at the first prefill
    drafted: Counter[Source] = field(default_factory=Counter)  # num_drafted by source
    accepted: Counter[Source] = field(default_factory=Counter)  # num_accepted by source

    def count(self, verdict: Verdict, num_new: int) -> None:
        """Counts an applied verdict. num_new: tokens of the verdict that were new."""
        if self.num_rounds == 0:
            self.num_cached = verdict.num_cached
        self.num_rounds += 1
        self.num_tokens += num_new
        self.num_drafts += verdict.num_verified > 0
        self.num_drafted += verdict.num_verified
        self.num_accepted += verdict.num_accepted
        if verdict.source is not None:
            self.drafted[verdict.source] += verdict.num_verified
            self.accepted[verdict.source] += verdict.num_accepted

    @property
    def draft_acceptance_rate(self) -> float:
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    def by_name(self) -> dict[str, object]:
        """Returns all counts by name, for JSON. `dataclasses.asdict` would count a Counter's items, not copy them."""
        numbers = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return numbers | {"drafted": by_source(self.drafted), "accepted": by_source(self.accepted)}


Action: TypeAlias = Send | Propose | Deliver | Finish | Fail


class Tell(Struct, frozen=True):
    """Give an item to the session's user; nothing follows a Finish or a Fail."""

    session_id: bytes
    item: Deliver | Finish | Fail


class Connect(Struct, frozen=True):
    """Create a link to another verify node."""

    link: int
    address: Address


class Disconnect(Struct, frozen=True):
    """Close a link, after sending its queued messages."""

    link: int


class Reconnect(Struct, frozen=True):
    """Replace a link's connection; its queued messages are dropped."""

    link: int = 0


class Connected(Struct, frozen=True):
    """A verify node answered the Hello: its limits apply from now on."""

    welcome: Welcome
    link: int = 0


class Away(Struct, frozen=True):
    """No verify node can be reached; texts wait for one."""


class EndTexts(Struct, frozen=True):
    """The verify node has been away for too long, so the texts that wait for it end."""

    num_texts: int


class GiveUp(Struct, frozen=True):
    """The verify node has been away for too long, so this node stops."""


NodeAction: TypeAlias = Send | Propose | Tell | Connect | Disconnect | Reconnect | Connected | Away | EndTexts | GiveUp
