"""Actions of sessions and of the core. Plain data.

A session's actions concern its user, the draft model or the link. `DraftCore` wraps actions for the user in `Tell`,
with the session id, and adds actions that concern the connection. The driver carries out all actions of an event in
order.
"""

from typing import TypeAlias

from msgspec import Struct

from draft_node.core.verify_nodes import Address
from goodspeed.drafting.proposing import Propose
from goodspeed.wire.fields import FinishReason
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import TokenLogprobs, UpMessage


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
