"""Types and bounds of message fields, the messages that a sender may send, and the base class of all messages."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

MAX_CONTEXT = 1 << 20
"""Longest token list in a message, whatever the model's context."""

MAX_DRAFT = 64
"""Most tokens in one draft, whatever the budget: verifying more per session and round brings no gain."""

MAX_LOGPROBS = 20
"""Most alternative tokens in the logprobs of a position."""

MAX_PROMPT_LOGPROBS = 1 << 18
"""Most prompt logprobs of a session: the prompt's tokens and each position's alternatives. So a message with them has
at most 8 MiB, which any configuration's limit admits."""

MAX_STOP_IDS = 64
"""Most stop token ids of a session."""

MAX_BIASES = 1024
"""Most tokens whose logits a session may bias."""

MAX_CONSTRAINT_CHARS = 1 << 16
"""Longest schema, expression, list or grammar of a constraint."""

MAX_REPLICAS = 64
"""Most verify nodes of one fleet."""

MAX_HOPS = 3
"""Most redirects of a session before a verify node commits a token to it."""

SESSION_MESSAGES_PER_S = 4.0
"""Messages per second that a session may send unearned. A session sends at most two (an Ack and a draft), and repeats
them once a second at first, with backoff to once in 8 s."""

VERDICT_MESSAGES = 8.0
"""Messages that a verdict earns its receiver. The answer is an Ack and up to six drafts: each draft is at least twice
as long as the previous one, or the final one. Some may arrive twice."""

BURST_S = 20.0
"""Burst size, in seconds of the message rate: messages that a line held back, or all sessions reopened at once."""

LEAST_SESSIONS = 64
"""Sessions of a client for which the message rate suffices, even if it may open fewer."""

TOKENS_PER_MESSAGE = 4096
"""An opened session costs one more message per this many tokens, because longer texts take longer to prefill."""

MIN_LOGPROB = -9999.0
"""Lowest logprob on the wire. Lower ones, including those of impossible tokens, are raised to it: all stay finite."""

TokenId: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
Tokens: TypeAlias = Annotated[tuple[TokenId, ...], Meta(max_length=MAX_CONTEXT)]
Counter: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e6)]
SessionId: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
BootId: TypeAlias = Annotated[bytes, Meta(min_length=8, max_length=16)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+\Z")]
Label: TypeAlias = Annotated[str, Meta(max_length=256, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]  # no control characters
Endpoint: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[!-~]+\Z")]  # printable ASCII
ServerKey: TypeAlias = Annotated[str, Meta(pattern=r"^([!-~]{40})?\Z")]  # in Z85; empty without keys
Text: TypeAlias = Annotated[str, Meta(max_length=2048)]
StopString: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
Verification: TypeAlias = Literal["match", "ratio"]
Drafter: TypeAlias = Literal["auto", "model", "ngram", "none"]
DraftSource: TypeAlias = Literal["model", "ngram", "self"]
NodeSource: TypeAlias = Literal["model", "ngram"]
ConstraintKind: TypeAlias = Literal["json_object", "json_schema", "regex", "choice", "grammar"]
Otherwise: TypeAlias = Literal["best_effort", "refuse"]
RedirectReason: TypeAlias = Literal["slo", "load", "draining"]
ProbabilityCode: TypeAlias = Annotated[int, Meta(ge=0, le=255)]
RepetitionPenalty: TypeAlias = Annotated[float, Meta(ge=0.01, le=100.0)]
MinP: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
FinishReason: TypeAlias = Literal["stop", "length"]
NumLogprobs: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
Logprob: TypeAlias = Annotated[float, Meta(ge=MIN_LOGPROB, le=0.0)]


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all messages."""
