"""The request for one text, and the events of its writing other than pieces of text. Plain data."""

from collections.abc import Callable
from dataclasses import dataclass, field

from draft_node.core.actions import Statistics
from draft_node.service.spoken import NO_SPEECH, Speech
from goodspeed.serving.defaults import Resolved
from goodspeed.slo.kept import Kept
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import MAX_DRAFT, Drafter, FinishReason, Otherwise, Verification
from goodspeed.wire.handshake import Defaults
from goodspeed.wire.messages import Constraint, LogitRules, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request for one text."""

    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    min_tokens: int = 0  # neither the end of sequence nor a stop string comes before
    ignore_eos: bool = False  # go on to max_tokens
    stop: tuple[str, ...] = ()  # strings that end the text; no part of any is given out
    stop_token_ids: tuple[int, ...] = ()  # tokens that end it beside the target's own, also where it ignores those
    is_chat: bool = False  # the text begins without the blank that a template leaves to the model
    num_logprobs: int | None = None  # alternatives besides the token itself; None: no log-probabilities
    num_prompt_logprobs: int | None = None  # likewise of each token of the prompt but the first
    max_draft: int = MAX_DRAFT  # 0: no speculation
    drafter: Drafter = "auto"  # what may draft for it
    slo: Objectives | None = None  # what it is to keep
    otherwise: Otherwise = "best_effort"  # what becomes of it where that cannot be promised
    logit_rules: LogitRules | None = None
    constraint: Constraint | None = None  # that the output keeps
    prediction: tuple[int, ...] = ()  # what its user expects it to be: drafts come from it
    priority: int = 0  # among its user's texts that wait; lower goes first
    prefix_cache: bool = True  # its KV cache may be shared with other texts of its user
    user: str = ""  # whose text it is, by `goodspeed.serving.web.user_of`; empty on the console
    verification: Verification = "match"
    restarts: bool = False  # begin anew when the verify node comes back with another target, instead of failing
    speech: Speech = NO_SPEECH  # how a chat's text is taken apart
    target: str | None = None  # fingerprint of the target whose defaults were filled in; None: none were
    resolve: Callable[[Defaults], Resolved] | None = field(default=None, compare=False)
    """Sampling, stop strings and rules under the defaults of another target; None: they are the request's own."""


def drafting(drafter: Drafter, max_draft: int) -> tuple[Drafter, int]:
    """Returns what may draft and the longest draft: where one of them says that nothing drafts, both do."""
    return ("none", 0) if drafter == "none" or max_draft == 0 else (drafter, max_draft)


@dataclass(frozen=True, slots=True)
class Target:
    """The target model, as the verify node names it; None where that is out of reach."""

    name: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """The text begins, or begins anew: what came before is void."""

    target_fingerprint: str | None  # of the target that writes it; None where the draft model begins alone
    session_id: bytes = b""
    statistics: Statistics = field(default_factory=Statistics)  # grow while the text is written


@dataclass(frozen=True, slots=True)
class Ended:
    """The text is complete, and its session closed at both nodes."""

    reason: FinishReason
    stop: str | None  # the stop string that ended it
    num_tokens: int  # generated tokens that are part of the answer, the one that completed a stop string included
    statistics: Statistics
    num_local: int = 0  # of the tokens, those that the draft model wrote alone
    kept: Kept | None = None  # what became of its objectives; None: it had none
    num_thinking: int = 0  # of the tokens, those that are thought
