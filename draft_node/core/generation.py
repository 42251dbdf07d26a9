"""A user's request for one text, as the draft node keeps it until it is on the wire. Plain data."""

from msgspec import Struct

from goodspeed.serving.sampling_defaults import SamplingRequest
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import MAX_DRAFT, Drafter, Otherwise, Verification
from goodspeed.wire.messages import Constraint, LogitRules, Sampling


class Generation(Struct, frozen=True):
    """One text: its prompt ids and parameters. `Service.generation` builds it, `Text.open` copies it to OpenSession."""

    session_id: bytes
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop_ids: tuple[int, ...] = ()  # tokens that end the text, the target's EOS tokens included
    verification: Verification = "match"
    max_draft: int = MAX_DRAFT  # 0: no drafts
    num_logprobs: int | None = None  # alternatives reported per position; None: no logprobs
    num_prompt_logprobs: int | None = None  # the same for each prompt token but the first
    min_tokens: int = 0  # output tokens before which neither stop_ids nor stop strings end the text
    target: str | None = None  # fingerprint of the target that stop_ids and sampling are for; None: any
    user: str = ""  # owner of the text, whose history may draft for it; empty: users are not distinguished
    drafter: Drafter = "auto"  # permitted sources of drafts
    slo: Objectives | None = None  # latency objectives; None: none
    otherwise: Otherwise = "best_effort"  # what to do if the SLO cannot be promised
    asked_at: float = 0.0  # time of the user's request
    logit_rules: LogitRules | None = None
    constraint: Constraint | None = None  # structured output
    cache_salt: bytes = b""  # texts with the same salt share cached prefixes; empty: shares with no other
    stop: tuple[str, ...] = ()  # strings that end the text, and are not part of it; the draft node finds them
    is_chat: bool = False  # omit the leading blank that a template leaves to the model
    asked: SamplingRequest | None = None  # what another target's defaults are filled into; None: these never change
