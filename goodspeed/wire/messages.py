"""The messages between a draft node and the verify node, as typed structs.

Fields are positional on the wire, so new fields are only appended, with defaults. Decoding checks the lengths and
ranges stated here before it allocates memory for the content. Which messages go up, and which down, say `UpMessage` and
`DownMessage` at the end.
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


def _check_aligned(tokens: Sequence[int], others: Sequence[object], what: str = "logprobs") -> None:
    """Raises ValueError unless there are as many others as tokens; msgspec turns it into a ValidationError."""
    if len(tokens) != len(others):
        raise ValueError(f"{len(others)} {what} for {len(tokens)} tokens")


class OpenSession(Message, frozen=True, tag="open"):
    """Opens a session, or reopens it in a higher epoch with the tokens committed so far.

    min_tokens: output tokens before which no id in stop_ids is drawn. num_logprobs: every Verdict has its tokens'
    logprobs and those of this many likeliest tokens at each position; None: no logprobs.
    """

    session_id: SessionId
    epoch: Counter
    prompt: Tokens
    committed: Tokens
    sampling: Sampling
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_CONTEXT)]
    stop_ids: Annotated[tuple[TokenId, ...], Meta(max_length=MAX_STOP_IDS)] = ()
    verification: Verification = "match"
    max_draft: Annotated[int, Meta(ge=0, le=MAX_DRAFT)] = MAX_DRAFT  # longest draft, the draft node's limit
    slo: Slo | None = None
    constraint: Constraint | None = None  # only if Welcome.constraints
    num_logprobs: NumLogprobs | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=MAX_CONTEXT)] = 0
    drafter: Drafter = "auto"  # sources that may draft for it
    otherwise: Otherwise = "best_effort"  # if its SLO cannot be promised
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)] = 0  # redirects since its latest token
    logit_rules: LogitRules | None = None
    cache_salt: Annotated[bytes, Meta(max_length=32)] = b""  # sessions with equal salts share cached prefixes
    num_prompt_logprobs: NumLogprobs | None = None  # alternatives per prompt token; None: no prompt logprobs


class Draft(Message, frozen=True, tag="draft"):
    """Drafted tokens that continue the text identified by (epoch, base_len).

    The verify node sends no answer. Like an Ack, a Draft acknowledges all tokens below base_len. A newer Draft replaces
    an older one; a lost Draft costs speed only. A round verifies the tokens that still continue the text when the batch
    is packed.
    """

    session_id: SessionId
    epoch: Counter
    base_len: Counter  # prompt + committed tokens when drafted
    tokens: Annotated[tuple[TokenId, ...], Meta(max_length=MAX_DRAFT)]
    probabilities: Annotated[bytes, Meta(max_length=MAX_DRAFT)] = b""  # by `probabilities.encode`; empty: unknown
    source: NodeSource = "model"  # source of the drafted tokens
    parents: Annotated[bytes, Meta(max_length=MAX_DRAFT)] | None = None
    """Each token's parent: 0 for the base, k + 1 for token k, which comes earlier. Among the children of one parent the
    first is the likeliest. None: the tokens are a chain."""
    complete: bool = False  # no more drafts for this text: permission used up, drafter too unsure, or drafter failed
    proposal: bytes | None = None  # ratio rule: the draft distributions (`proposals.py`)

    def __post_init__(self) -> None:
        if self.probabilities:
            _check_aligned(self.tokens, self.probabilities, "probabilities")
        if self.parents is not None:
            _check_aligned(self.tokens, self.parents, "parents")
        for node, parent in enumerate(self.parents or ()):
            if parent > node:
                raise ValueError(f"token {node} follows token {parent - 1}, which does not precede it")


class Redirect(Message, frozen=True, tag="redirect"):
    """Closes a session here and sends it to another replica, where it continues with its committed tokens.

    Draft nodes obey only if a `Heartbeat` or their own settings list the replica.
    """

    session_id: SessionId
    epoch: Counter
    endpoint: Endpoint
    server_key: ServerKey
    hops: Annotated[int, Meta(ge=1, le=MAX_HOPS)]  # including this one; for the next OpenSession
    reason: RedirectReason  # "slo": this session alone; others: all sessions that the draft node opens later, too


class TokenLogprobs(Message, frozen=True):
    """The target's logprobs of a token and of the likeliest tokens at its position, in descending order.

    Natural logarithms of the raw probabilities: softmax of the logits, without temperature, truncation or masks.
    """

    logprob: Logprob
    top_ids: Annotated[tuple[TokenId, ...], Meta(max_length=MAX_LOGPROBS)] = ()
    top_logprobs: Annotated[tuple[Logprob, ...], Meta(max_length=MAX_LOGPROBS)] = ()

    def __post_init__(self) -> None:
        _check_aligned(self.top_ids, self.top_logprobs)


class Verdict(Message, frozen=True, tag="verdict"):
    """New tokens of one session, and the permission to draft beyond them."""

    session_id: SessionId
    epoch: Counter
    base_len: Counter  # position of tokens[0]
    tokens: Tokens
    num_verified: Annotated[int, Meta(ge=0, le=MAX_DRAFT)]
    num_accepted: Annotated[int, Meta(ge=0, le=MAX_DRAFT)]  # of these, delivered; at most num_verified
    may_draft: Counter = 0  # permission: how far beyond the text the draft model may draft, by the policy
    finish_reason: FinishReason | None = None
    least_probability: ProbabilityCode = 255  # code of the least path probability worth verifying; 255: no bound
    source: DraftSource | None = None  # source of the verified drafted tokens
    promised: bool | None = None  # whether its SLO is promised; None: no SLO, or undecided
    logprobs: Annotated[tuple[TokenLogprobs, ...], Meta(max_length=MAX_CONTEXT)] | None = None  # one per token
    num_cached: Counter = 0
    """Prompt tokens found in the KV cache before the session's first round. Sent in every verdict of an epoch until one
    is acknowledged."""
    prompt_logprobs: Annotated[tuple[TokenLogprobs, ...], Meta(max_length=MAX_CONTEXT)] | None = None
    """In the first verdict, if requested: one per prompt token except the first."""

    def __post_init__(self) -> None:
        if self.num_accepted > self.num_verified:
            raise ValueError(f"{self.num_accepted} tokens of {self.num_verified} are accepted")
        if self.logprobs is not None:
            _check_aligned(self.tokens, self.logprobs)


class Ack(Message, frozen=True, tag="ack"):
    """Acknowledges that the draft node applied all tokens below base_len."""

    session_id: SessionId
    epoch: Counter
    base_len: Counter


class Close(Message, frozen=True, tag="close"):
    """Closes a session that is finished and applied, or abandoned by its user."""

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
    "too_many_prompt_logprobs",
    "not_promised",
    "draining",
    "failed",
    "constraint",
]


class Refusal(Message, frozen=True, tag="refusal"):
    """Refuses a message: what was refused and why, and what to do. Names the session concerned, if any."""

    code: Annotated[str, Meta(max_length=64)]  # a `RefusalCode`, or a later release's code
    what: Text
    what_to_do: Text
    session_id: SessionId | None = None
    epoch: Counter = 0


UpMessage: TypeAlias = Hello | OpenSession | Draft | Ack | Close | Heartbeat | Leave
DownMessage: TypeAlias = Welcome | Redirect | Verdict | Refusal | Heartbeat
