"""Messages between two nodes about themselves: handshake, heartbeats, and the replicas of the fleet."""

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
"""Version of this protocol; the handshake refuses a peer of another version."""


class Hello(Message, frozen=True, tag="hello"):
    """First message of a draft node on every connection."""

    version: Counter
    name: Name  # the client's, the unit of fairness
    boot_id: BootId  # identifies this process
    tokenizer: Label  # fingerprint
    draft_model: Label = ""  # name; empty: no draft model
    draft_fingerprint: Label = ""  # of the draft model's weights and precision


class Defaults(Message, frozen=True):
    """The target's sampling defaults for parameters that a request omits; None: the API's default.

    Read from the target's `generation_config.json` (and, for chats, `chat_generation_config.json`).
    """

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None
    top_k: Annotated[int, Meta(ge=0, lt=1 << 31)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    stop: Annotated[tuple[StopString, ...], Meta(max_length=8)] = ()  # stop strings in addition to the request's
    repetition_penalty: RepetitionPenalty | None = None
    min_p: MinP | None = None


class SloTerms(Message, frozen=True):
    """The service levels that a draft node may request."""

    tiers: Annotated[tuple[Objectives, ...], Meta(max_length=MAX_TIERS)] = ()  # the named service levels
    least_tpot_s: Limit | None = None  # a shorter TPOT objective is raised to it


class Welcome(Message, frozen=True, tag="welcome"):
    """The verify node's answer to an acceptable Hello, with its limits and defaults."""

    version: Counter
    boot_id: BootId
    tokenizer: Label
    vocab_size: Counter  # token ids are below it
    context_len: Counter  # most tokens of prompt and output together
    max_message_bytes: Counter
    heartbeat_s: Seconds
    lease_s: Seconds
    eos_ids: Annotated[tuple[TokenId, ...], Meta(max_length=64)] = ()  # end-of-text tokens of the target
    target: Label = ""  # the target model's name
    target_fingerprint: Label = ""  # of its weights and what computes them; only the same target may continue a text
    defaults: Defaults = Defaults()  # for plain completions
    chat_defaults: Defaults = Defaults()
    slo: SloTerms = SloTerms()
    constraints: bool = False  # constraints are served
    promises: bool = False  # the node may promise service levels
    trees: bool = True  # drafted trees are verified; else only their first choices


class Sibling(Message, frozen=True):
    """A replica of the fleet as reported to draft nodes."""

    endpoint: Endpoint  # for draft nodes
    server_key: ServerKey = ""
    target_fingerprint: Label = ""  # as in Welcome; empty: unknown
    is_draining: bool = False  # it admits no more sessions
    expected_s: Seconds | None = None  # estimated time per token of one more session there; None: unknown


class Heartbeat(Message, frozen=True, tag="heartbeat"):
    """Sign of life, in both directions. A changed boot_id means that the peer restarted and lost all sessions."""

    boot_id: BootId
    siblings: Annotated[tuple[Sibling, ...], Meta(max_length=MAX_REPLICAS)] | None = None
    """All replicas of the fleet, including the sender. Sent down, after Welcome and on changes; None: unchanged."""


class Leave(Message, frozen=True, tag="leave"):
    """Final message of a draft node that shuts down; ends all its sessions.

    (A verify node that shuts down sends a `Refusal` with code `draining` and no session.)
    """
