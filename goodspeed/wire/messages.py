"""The messages that travel between a draft node and the verify node, as typed structs.

Knows nothing about bytes (`codec.py`) or sockets (`transport.py`). Fields are positional on the wire: they are only
ever appended, with defaults. Lengths and ranges stated here are checked while decoding, before anything is allocated
for the content.

Up: `Hello`, `OpenSession`, `Draft`, `Offer`, `Ack`, `Close`, `Heartbeat`, `Leave`. Down: `Welcome`, `Replicas`,
`Admitted`, `Redirect`, `Verdict`, `Refusal`, `Heartbeat`.

A field or a message that an older release of this version does not know is sent only to peers whose `capabilities`
name it; `codec.encode` leaves out trailing fields at their defaults, so all other messages are as that release wrote
them.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from goodspeed.wire.digests import TextDigest as TextDigest
from goodspeed.wire.digests import digest as digest
from goodspeed.wire.fields import (
    MAX_CONTEXT,
    MAX_DRAFT,
    MAX_HOPS,
    MAX_LOGPROBS,
    MAX_OFFER,
    MAX_STOP_IDS,
    AdmittedAs,
    Counter,
    Digest,
    Drafter,
    DraftSource,
    Endpoint,
    FinishReason,
    Logprob,
    Message,
    NumLogprobs,
    OddsCode,
    OfferSource,
    Otherwise,
    RedirectReason,
    Seconds,
    ServerKey,
    SessionId,
    Text,
    TokenId,
    Tokens,
    Verification,
)
from goodspeed.wire.generation import Constraint as Constraint
from goodspeed.wire.generation import LogitRules as LogitRules
from goodspeed.wire.generation import Sampling as Sampling
from goodspeed.wire.generation import Slo as Slo
from goodspeed.wire.handshake import Heartbeat, Hello, Leave, Replicas, Welcome


def _check_aligned(tokens: Sequence[int], logprobs: Sequence[object]) -> None:
    """Raises ValueError unless there are as many logprobs as tokens; msgspec makes it a ValidationError."""
    if len(tokens) != len(logprobs):
        raise ValueError(f"{len(logprobs)} logprobs for {len(tokens)} tokens")


def _check_odds(tokens: Sequence[int], odds: bytes | None) -> None:
    """Raises ValueError unless there is an odds code for every token, or for none."""
    if odds is not None and len(odds) != len(tokens):
        raise ValueError(f"{len(odds)} odds for {len(tokens)} tokens")


def _check_parents(tokens: Sequence[int], parents: bytes | None) -> None:
    """Raises ValueError unless every token has a parent that comes before it, or none has any."""
    if parents is None:
        return
    if len(parents) != len(tokens):
        raise ValueError(f"{len(parents)} parents for {len(tokens)} tokens")
    for node, parent in enumerate(parents):
        if parent > node:
            raise ValueError(f"token {node} follows token {parent - 1}, which does not come before it")


class OpenSession(Message, frozen=True, tag="open"):
    """Opens a session, or reopens it (epoch raised) with the tokens that are already committed.

    Until `min_tokens` tokens follow the prompt, no id in stop_ids is drawn. With `num_logprobs` every Verdict has the
    logprobs of its tokens and of that many likeliest tokens at each position.
    """

    session_id: SessionId
    epoch: Counter
    prompt: Tokens
    committed: Tokens
    sampling: Sampling
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_CONTEXT)]
    stop_ids: Annotated[tuple[TokenId, ...], Meta(max_length=MAX_STOP_IDS)] = ()
    verification: Verification = "match"
    max_draft: Annotated[int, Meta(ge=0, le=MAX_DRAFT)] = MAX_DRAFT  # the draft node's own cap
    slo: Slo | None = None  # only to verify nodes that know SLOs
    priority: None = None
    constraint: Constraint | None = None  # only to verify nodes that know constraints
    num_logprobs: NumLogprobs | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=MAX_CONTEXT)] = 0
    drafter: Drafter = "auto"  # what may draft for it; only to verify nodes that take offers
    otherwise: Otherwise = "best_effort"  # where its SLO cannot be promised; only to verify nodes that promise
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)] = 0  # redirects since its last token; only to nodes of a fleet
    logit_rules: LogitRules | None = None  # only to verify nodes that know them
    cache_salt: Annotated[bytes, Meta(max_length=32)] = b""  # who shares read prompts with it; only where they are kept
    num_prompt_logprobs: NumLogprobs | None = None  # alternatives told of each token of the prompt; None: no logprobs


class Draft(Message, frozen=True, tag="draft"):
    """Tokens proposed for one session; there is one per (epoch, round), and retransmissions repeat it byte for byte."""

    session_id: SessionId
    epoch: Counter
    round: Counter
    base_len: Counter  # prompt + committed tokens that it was made on
    base_digest: Digest  # `digest` of those tokens
    tokens: Annotated[tuple[TokenId, ...], Meta(max_length=MAX_DRAFT)]
    proposal: bytes | None = None  # ratio: what the tokens were sampled from (`proposals.py`)
    drafting_s: Seconds = 0.0  # time the draft model took, for the accounting of rounds
    parents: None = None  # room left: token trees
    assumes: bool = False  # made ahead of a verdict: base_len and base_digest are what it hopes to be committed by then
    odds: Annotated[bytes, Meta(max_length=MAX_DRAFT)] | None = None  # `odds.encode` of each token; None: not known
    num_ngram: Counter = 0  # leading tokens that an n-gram index drafted; the model drafted the others

    def __post_init__(self) -> None:
        _check_odds(self.tokens, self.odds)


class Offer(Message, frozen=True, tag="offer"):
    """Tokens that an n-gram index or a draft model expects after a text at length 0, which goes on without them, too.

    The verify node verifies those that still continue the text when a round is packed, and forgets the rest; nothing
    answers an offer. It acknowledges all tokens below base_len, as an Ack does. A newer offer replaces an older one.
    Only sessions of the match rule have offers.
    """

    session_id: SessionId
    epoch: Counter
    base_len: Counter  # prompt + committed tokens that it was made on; with the epoch they name the text
    tokens: Annotated[tuple[TokenId, ...], Meta(min_length=1, max_length=MAX_OFFER)]
    odds: Annotated[bytes, Meta(max_length=MAX_OFFER)]  # `odds.encode` of each token
    source: OfferSource = "ngram"  # what drafted them; "model" only to verify nodes that take model offers
    parents: Annotated[bytes, Meta(max_length=MAX_OFFER)] | None = None
    """Of each token 0 if it follows the base, or k + 1 if it follows token k, which comes before it. The tokens are a
    tree then, and of those that follow the same token the first is the likeliest. None: each follows the one before it.
    Only to verify nodes that know trees."""

    def __post_init__(self) -> None:
        _check_odds(self.tokens, self.odds)
        _check_parents(self.tokens, self.parents)


class Admitted(Message, frozen=True, tag="admitted"):
    """How a session with an SLO is served: its SLO is promised, or it gets what promises leave.

    Only to draft nodes that know promises. It answers every OpenSession with an SLO, before the first Verdict to that.
    """

    session_id: SessionId
    epoch: Counter
    tier: AdmittedAs


class Redirect(Message, frozen=True, tag="redirect"):
    """A session is not open here any more, and is to go on at another replica, with what is committed.

    Only to draft nodes that know fleets, which obey only where the replica is one of `Replicas` or of their own.
    """

    session_id: SessionId
    epoch: Counter
    endpoint: Endpoint
    server_key: ServerKey
    hops: Annotated[int, Meta(ge=1, le=MAX_HOPS)]  # with this one; the next OpenSession says so
    reason: RedirectReason  # "slo" concerns this session alone, the others all that its draft node opens from now on


class TokenLogprobs(Message, frozen=True):
    """The target's logprobs of a token and of the likeliest ones at its position, in falling order.

    Natural logarithms of the raw probabilities: softmax of the logits, without temperature, truncation or masks.
    """

    logprob: Logprob
    top_ids: Annotated[tuple[TokenId, ...], Meta(max_length=MAX_LOGPROBS)] = ()
    top_logprobs: Annotated[tuple[Logprob, ...], Meta(max_length=MAX_LOGPROBS)] = ()

    def __post_init__(self) -> None:
        _check_aligned(self.top_ids, self.top_logprobs)


class Verdict(Message, frozen=True, tag="verdict"):
    """New tokens of one session; applying it does not need the draft that it answers."""

    session_id: SessionId
    epoch: Counter
    round: Counter | None  # of the draft it answers; None when the verify node went on by itself
    base_len: Counter  # position of tokens[0]
    tokens: Tokens
    num_verified: Counter
    num_accepted: Counter
    next_length: Counter
    finish_reason: FinishReason | None = None
    logprobs: Annotated[tuple[TokenLogprobs, ...], Meta(max_length=MAX_CONTEXT)] | None = None  # one for each token
    dropped: Counter | None = None  # round of a draft made ahead that is dropped unverified: it assumed another text
    least_odds: OddsCode = 255  # code of the path odds below which a drafted token would not be verified; 255: none
    source: DraftSource | None = None  # what drafted the verified tokens, where they were no Draft
    may_draft: Counter = 0  # tokens beyond the text that the draft model may have drafted, by the policy; 0: none
    num_cached: Counter = 0
    """Tokens of the prompt that were in memory before the session's first round: in every verdict of an epoch until one
    is acknowledged."""
    prompt_logprobs: Annotated[tuple[TokenLogprobs, ...], Meta(max_length=MAX_CONTEXT)] | None = None
    """In the first verdict, where they are wanted: one for each token of the prompt but the first."""

    def __post_init__(self) -> None:
        if self.logprobs is not None:
            _check_aligned(self.tokens, self.logprobs)


class Ack(Message, frozen=True, tag="ack"):
    """Acknowledges that the draft node has applied all tokens below base_len."""

    session_id: SessionId
    epoch: Counter
    base_len: Counter


class Close(Message, frozen=True, tag="close"):
    """Closes a session: it is finished and applied, or its user went away."""

    session_id: SessionId
    epoch: Counter


RefusalCode: TypeAlias = Literal[
    "malformed",
    "too_large",
    "version",
    "tokenizer",
    "hello_first",
    "not_enrolled",
    "wrong_name",
    "barred",
    "unknown_session",
    "not_owner",
    "stale_epoch",
    "stale_round",
    "wrong_base",
    "too_long",
    "not_assigned",
    "not_acknowledged",
    "vocabulary",
    "proposal",
    "prompt",
    "unsupported",
    "too_many_sessions",
    "not_promised",
    "draining",
    "failed",
    "constraint",
]


class Refusal(Message, frozen=True, tag="refusal"):
    """Refuses a message: what was not accepted, why, and what to do; echoes the session and round it refers to."""

    code: Annotated[str, Meta(max_length=64)]  # a `RefusalCode`, or one of a later release
    what: Text
    what_to_do: Text
    session_id: SessionId | None = None
    epoch: Counter = 0
    round: Counter | None = None


UpMessage: TypeAlias = Hello | OpenSession | Draft | Offer | Ack | Close | Heartbeat | Leave
DownMessage: TypeAlias = Welcome | Replicas | Admitted | Redirect | Verdict | Refusal | Heartbeat
