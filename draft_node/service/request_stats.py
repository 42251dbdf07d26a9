"""Counts the texts that users requested, for metrics. No clock: time is an argument."""

from collections import Counter
from dataclasses import dataclass, field

from draft_node.core.counts import known
from goodspeed.serving.measuring.counts import REQUEST_S, REQUEST_TOKENS, TIME_TO_FIRST_TOKEN_S, TOKEN_S, Histogram
from goodspeed.slo.attainment import NO_OBJECTIVES, Kept, Outcome, Times
from goodspeed.slo.objectives import OTHER, Objectives
from goodspeed.wire.fields import FinishReason


@dataclass(slots=True)
class RequestStats:
    """Counts of the requested texts, as their users saw them."""

    finished: Counter[FinishReason] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)  # by code; not admitted, or not completed
    num_abandoned: int = 0  # texts whose users left
    num_prompt_tokens: int = 0  # of texts that got a first token
    num_tokens: int = 0  # generated
    first_token_s: Histogram = field(default_factory=lambda: Histogram(TIME_TO_FIRST_TOKEN_S))
    gap_s: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))  # between deliveries of one text
    per_token_s: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))  # mean over one text, after its first
    whole_s: Histogram = field(default_factory=lambda: Histogram(REQUEST_S))
    prompt_tokens: Histogram = field(default_factory=lambda: Histogram(REQUEST_TOKENS))
    tokens: Histogram = field(default_factory=lambda: Histogram(REQUEST_TOKENS))
    slo_outcomes: Counter[tuple[str, Outcome]] = field(default_factory=Counter)  # of complete texts, by tier
    promised: Counter[tuple[str, Outcome]] = field(default_factory=Counter)  # of these, texts with a promised SLO
    slo_tokens: Counter[str] = field(default_factory=Counter)  # of complete texts that attained their SLO, by tier

    def begin(self, num_prompt_tokens: int, now: float, slo: Objectives | None = None) -> "RequestRecord":
        """Starts counting a requested text. slo: its objectives, of a known tier or of none; None: no objectives."""
        return RequestRecord(self, num_prompt_tokens, Times(now, slo or NO_OBJECTIVES))

    def count_failure(self, code: str) -> None:
        self.failed[known(code)] += 1


@dataclass(slots=True)
class RequestRecord:
    """Counts one text, from its request to its end."""

    texts: RequestStats
    num_prompt_tokens: int
    times: Times
    _over: bool = False

    def delivered(self, num_tokens: int, now: float, num_thinking: int = 0) -> None:
        """Counts delivered tokens, `num_thinking` of them reasoning; several arrive at once if a draft was accepted."""
        if not num_tokens:
            return
        texts, times = self.texts, self.times
        if times.last_at is not None:
            texts.gap_s.observe(now - times.last_at)
        else:
            texts.first_token_s.observe(now - times.asked_at)
            texts.num_prompt_tokens += self.num_prompt_tokens
        times.delivered(num_tokens, now, num_thinking)
        texts.num_tokens += num_tokens

    def finished(self, reason: FinishReason, now: float, promised: bool | None = None) -> Kept | None:
        """Counts a complete text. Returns whether its objectives were attained; None: it had none."""
        self._over = True
        texts, times = self.texts, self.times
        texts.finished[reason] += 1
        texts.whole_s.observe(now - times.asked_at)
        texts.prompt_tokens.observe(self.num_prompt_tokens)
        texts.tokens.observe(times.num_tokens)
        if times.tpot_s is not None:
            texts.per_token_s.observe(times.tpot_s)
        if times.slo is NO_OBJECTIVES:
            return None
        kept, tier = times.kept(promised), times.slo.tier or OTHER
        texts.slo_outcomes[tier, kept.outcome] += 1
        texts.promised[tier, kept.outcome] += bool(promised)
        texts.slo_tokens[tier] += times.num_tokens if kept.outcome == "attained" else 0
        return kept

    def failed(self, code: str) -> None:
        """Counts a session that was not admitted, or cannot go on."""
        self._over = True
        self.texts.count_failure(code)

    def left(self) -> None:
        """Counts a text whose user left before its end."""
        if not self._over:
            self._over = True
            self.texts.num_abandoned += 1
