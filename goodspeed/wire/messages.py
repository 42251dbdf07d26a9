"""The messages that travel between a draft node and the verify node, as typed structs.

Fields are positional on the wire: they are only ever appended, with defaults. Lengths and ranges stated here are
checked while decoding, before anything is allocated for the content.

Up: `Hello`, `OpenSession`, `Draft`, `Ack`, `Close`, `Heartbeat`, `Leave`. Down: `Welcome`, `Verdict`, `Redirect`,
`Refusal`, `Heartbeat`.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from goodspeed.wire.fields import (
    MAX_CONTEXT,
    MAX_DRAFT,
    MAX_HOPS,
    MAX_LOGPROBS,
    MAX_STOP_IDS,
    Counter,
    Drafter,
    DraftSource,
    Endpoint,
    FinishReason,
    Logprob,
    Message,
    NodeSource,
    NumLogprobs,
    Otherwise,
    ProbabilityCode,
    RedirectReason,
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
from goodspeed.wire.handshake import Heartbeat, Hello, Leave, Welcome


def _check_aligned(tokens: Sequence[int], logprobs: Sequence[object]) -> None:
    """Raises ValueError unless there are as many logprobs as tokens; msgspec makes it a ValidationError."""
    if len(tokens) != len(logprobs):
        raise ValueError(f"{len(logprobs)} logprobs for {len(tokens)} tokens")


def _check_probabilities(tokens: Sequence[int], probabilities: bytes) -> None:
    """Raises ValueError unless there is a probability code for every token, or for none."""
    if probabilities and len(probabilities) != len(tokens):
        raise ValueError(f"{len(probabilities)} probabilities for {len(tokens)} tokens")


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
    slo: Slo | None = None
    constraint: Constraint | None = None  # only where Welcome says that constraints are served
    num_logprobs: NumLogprobs | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=MAX_CONTEXT)] = 0
    drafter: Drafter = "auto"  # what may draft for it
    otherwise: Otherwise = "best_effort"  # where its SLO cannot be promised
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)] = 0  # redirects since its last token
    logit_rules: LogitRules | None = None
    cache_salt: Annotated[bytes, Meta(max_length=32)] = b""  # who shares read prompts with it
    num_prompt_logprobs: NumLogprobs | None = None  # alternatives told of each token of the prompt; None: no logprobs


class Draft(Message, frozen=True, tag="draft"):
    """The tokens drafted beyond a text. (epoch, base_len) names the text, which goes on without it, too.

    Nothing answers it. It acknowledges all tokens below base_len, as an Ack does. A newer one replaces an older one; a
    lost one costs speed only. A round verifies what still continues the text when it is packed.
    """

    session_id: SessionId
    epoch: Counter
    base_len: Counter  # prompt + committed tokens that it was made on
    tokens: Annotated[tuple[TokenId, ...], Meta(max_length=MAX_DRAFT)]
    probabilities: Annotated[bytes, Meta(max_length=MAX_DRAFT)] = (
        b""  # `probabilities.encode` of each token; empty: not known
    )
    source: NodeSource = "model"  # what drafted them
    parents: Annotated[bytes, Meta(max_length=MAX_DRAFT)] | None = None
    """Of each token 0 if it follows the base, or k + 1 if it follows token k, which comes before it. The tokens are a
    tree then, and of those that follow the same token the first is the likeliest. None: a chain."""
    complete: bool = False  # nothing more comes beyond this text: all that it may draft is here, or it doubts, or fails
    proposal: bytes | None = None  # ratio: what the tokens were sampled from (`proposals.py`)

    def __post_init__(self) -> None:
        _check_probabilities(self.tokens, self.probabilities)
        _check_parents(self.tokens, self.parents)


class Redirect(Message, frozen=True, tag="redirect"):
    """A session is not open here any more, and is to go on at another replica, with what is committed.

    Draft nodes obey only where the replica is in a `Heartbeat` or of their own.
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
    """New tokens of one session, and how many more its draft node may draft beyond them."""

    session_id: SessionId
    epoch: Counter
    base_len: Counter  # position of tokens[0]
    tokens: Tokens
    num_verified: Counter
    num_accepted: Counter
    may_draft: Counter = 0  # tokens beyond the text that may be drafted: the policy's allocation; 0: none
    finish_reason: FinishReason | None = None
    least_probability: ProbabilityCode = (
        255  # code of the path probability below which a drafted token would not be verified; 255: none
    )
    source: DraftSource | None = None  # what drafted the verified tokens
    promised: bool | None = None  # whether its SLO is promised; None: it has none, or that is not decided
    logprobs: Annotated[tuple[TokenLogprobs, ...], Meta(max_length=MAX_CONTEXT)] | None = None  # one for each token
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
    "wrong_base",
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
    """Refuses a message: what was not accepted, why, and what to do; echoes the session that it refers to."""

    code: Annotated[str, Meta(max_length=64)]  # a `RefusalCode`, or one of a later release
    what: Text
    what_to_do: Text
    session_id: SessionId | None = None
    epoch: Counter = 0


UpMessage: TypeAlias = Hello | OpenSession | Draft | Ack | Close | Heartbeat | Leave
DownMessage: TypeAlias = Welcome | Redirect | Verdict | Refusal | Heartbeat
