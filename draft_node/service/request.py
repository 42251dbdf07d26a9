"""The request for one text, and the events around its pieces (`Begun`, `Ended`). Plain data."""

from collections.abc import Callable
from dataclasses import dataclass, field

from draft_node.core.actions import Statistics
from draft_node.parsing.parser import ONLY_CONTENT, ParserSettings
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
    min_tokens: int = 0  # before these, neither EOS nor a stop string ends the text
    ignore_eos: bool = False  # generate up to max_tokens
    stop: tuple[str, ...] = ()  # strings that end the text, and are not part of it
    stop_token_ids: tuple[int, ...] = ()  # end the text, in addition to the target's EOS tokens; also with ignore_eos
    is_chat: bool = False  # omit the leading blank that a template leaves to the model
    num_logprobs: int | None = None  # alternatives in addition to the token itself; None: no log-probabilities
    num_prompt_logprobs: int | None = None  # likewise for the prompt's tokens but the first
    max_draft: int = MAX_DRAFT  # 0: no speculation
    drafter: Drafter = "auto"  # allowed draft sources
    slo: Objectives | None = None  # None: no objectives
    otherwise: Otherwise = "best_effort"  # if the SLO cannot be promised
    logit_rules: LogitRules | None = None
    constraint: Constraint | None = None  # on the output
    prediction: tuple[int, ...] = ()  # expected output, a source of drafts
    priority: int = 0  # among its user's waiting texts; lower first
    prefix_cache: bool = True  # its KV cache may be shared with other texts of its user
    user: str = ""  # by `goodspeed.serving.web.user_of`; empty for --prompts
    verification: Verification = "match"
    restarts: bool = False  # restart, not fail, if the verify node returns with another target
    parser: ParserSettings = ONLY_CONTENT  # how to parse a chat's text
    target: str | None = None  # fingerprint of the target whose defaults were filled in; None: none
    resolve: Callable[[Defaults], Resolved] | None = field(default=None, compare=False)
    """Returns sampling, stop strings and rules under another target's defaults; None: these never change."""


def drafting(drafter: Drafter, max_draft: int) -> tuple[Drafter, int]:
    """Returns drafter and longest draft; ("none", 0) if either of them disables drafting."""
    return ("none", 0) if drafter == "none" or max_draft == 0 else (drafter, max_draft)


@dataclass(frozen=True, slots=True)
class Target:
    """The verify node's target model; its fields are None while the verify node is out of reach."""

    name: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """The text begins, or restarts: earlier items are void."""

    target_fingerprint: str | None
    session_id: bytes = b""
    statistics: Statistics = field(default_factory=Statistics)  # updated while the text is generated


@dataclass(frozen=True, slots=True)
class Ended:
    """The text is complete, and its session is closed at both nodes."""

    reason: FinishReason
    stop: str | None  # the stop string that ended it; None: none did
    num_tokens: int  # of the answer, including the token that completed a stop string
    statistics: Statistics
    kept: Kept | None = None  # SLO outcome; None: no objectives
    num_thinking: int = 0  # of these, reasoning tokens
