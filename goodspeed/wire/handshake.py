"""The messages that two nodes exchange about themselves: greetings, signs of life, and the members of the fleet."""

from typing import Annotated

from msgspec import Meta

from goodspeed.slo.objectives import MAX_TIERS, Limit, Objectives
from goodspeed.wire.fields import (
    MAX_REPLICAS,
    BootId,
    Counter,
    Endpoint,
    Label,
    Message,
    MinP,
    Name,
    RepetitionPenalty,
    Seconds,
    ServerKey,
    StopString,
    TokenId,
)

VERSION = 4
"""Version of this protocol; a peer of another version is refused at the handshake."""


class Hello(Message, frozen=True, tag="hello"):
    """First word of a draft node on every connection."""

    version: Counter
    name: Name  # of the client: the unit of fairness
    boot_id: BootId  # of this process
    tokenizer: Label  # fingerprint
    draft_model: Label = ""  # empty where it has none
    draft_fingerprint: Label = ""  # of the draft model's weights and precision


class Defaults(Message, frozen=True):
    """The target's sampling defaults, for requests that leave them out; None is the API's own default.

    They come from the target's `generation_config.json` (and, for chats, `chat_generation_config.json`).
    """

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None
    top_k: Annotated[int, Meta(ge=0, lt=1 << 31)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    stop: Annotated[tuple[StopString, ...], Meta(max_length=8)] = ()  # strings that end a text, beside the user's own
    repetition_penalty: RepetitionPenalty | None = None
    min_p: MinP | None = None


class SloTerms(Message, frozen=True):
    """The service levels that a draft node may ask for."""

    tiers: Annotated[tuple[Objectives, ...], Meta(max_length=MAX_TIERS)] = ()  # by their names
    least_tpot_s: Limit | None = None  # what is less is raised to it


class Welcome(Message, frozen=True, tag="welcome"):
    """The verify node's answer to an acceptable Hello, with its limits and defaults."""

    version: Counter
    boot_id: BootId
    tokenizer: Label
    vocab_size: Counter  # ids below it are the tokenizer's
    context_len: Counter  # prompt and generated tokens together
    max_message_bytes: Counter
    heartbeat_s: Seconds
    lease_s: Seconds
    eos_ids: Annotated[tuple[TokenId, ...], Meta(max_length=64)] = ()  # what the target ends a text with
    target: Label = ""  # the target model's name
    target_fingerprint: Label = ""  # of its weights, precision and revision: a text is continued by this target only
    defaults: Defaults = Defaults()  # of plain completions
    chat_defaults: Defaults = Defaults()
    slo: SloTerms = SloTerms()
    constraints: bool = False  # texts may be asked to keep a form
    promises: bool = False  # service levels may be promised


class Sibling(Message, frozen=True):
    """One replica of the fleet, as draft nodes know it."""

    endpoint: Endpoint  # that draft nodes connect to
    server_key: ServerKey = ""
    target_fingerprint: Label = ""  # as in Welcome; empty: not known
    is_draining: bool = False  # it takes no session any more
    expected_s: Seconds | None = None  # about what a session more waits for each token there; None: not known


class Heartbeat(Message, frozen=True, tag="heartbeat"):
    """Sign of life, both ways; a changed boot_id means that the peer restarted and knows no session."""

    boot_id: BootId
    siblings: Annotated[tuple[Sibling, ...], Meta(max_length=MAX_REPLICAS)] | None = None
    """Down, after Welcome and when it changed: all replicas of the fleet, the sender among them. None: no news."""


class Leave(Message, frozen=True, tag="leave"):
    """Last message of a draft node that shuts down; it ends all its sessions.

    (A verify node that shuts down sends a `Refusal` `draining` about no session.)
    """
