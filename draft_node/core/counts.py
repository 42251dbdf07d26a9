"""Counters of the draft node since its start: plain numbers that only grow: for those who watch.

No I/O, no clock of its own: every event is given its time.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import get_args

from draft_node.core.actions import Statistics
from goodspeed.serving.counts import REQUEST_S, REQUEST_TOKENS, TIME_TO_FIRST_TOKEN_S, TOKEN_S, Histogram
from goodspeed.slo.kept import Kept, Outcome, Times
from goodspeed.slo.objectives import OTHER, Objectives
from goodspeed.wire.fields import FinishReason
from goodspeed.wire.messages import RefusalCode

OWN = ("busy", "verify_away", "target_changed", "closed", "internal")
"""Failures that no verify node names."""

KNOWN = (*get_args(RefusalCode), *OWN)


def known(code: str) -> str:
    """The code, if it is one of those that this release knows: names that come from the network are not kept."""
    return code if code in KNOWN else OTHER


@dataclass(slots=True)
class Counts:
    """Counts of connections and refusals, and of sessions that are over."""

    num_connected: int = 0  # handshakes; every one but the first was a reconnection
    num_redirected: int = 0  # sessions that a verify node sent to another
    refusals: Counter[str] = field(default_factory=Counter)  # by reason
    statistics: Statistics = field(default_factory=Statistics)  # of all sessions that are over

    def refused(self, code: str) -> None:
        self.refusals[known(code)] += 1


def total(*parts: Statistics) -> Statistics:
    """Their sum, number by number."""
    names = Statistics.__dataclass_fields__
    begins = Statistics()
    return Statistics(**{name: sum((getattr(part, name) for part in parts), getattr(begins, name)) for name in names})


@dataclass(slots=True)
class Texts:
    """Counts of the texts that were asked for, as their readers saw them."""

    finished: Counter[FinishReason] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)  # by code; not let in, or not completed
    num_abandoned: int = 0  # their readers left
    num_prompt_tokens: int = 0  # of texts that got a first token
    num_tokens: int = 0  # generated
    first_token_s: Histogram = field(default_factory=lambda: Histogram(TIME_TO_FIRST_TOKEN_S))
    gap_s: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))  # between deliveries of one text
    per_token_s: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))  # mean over one text, after its first
    whole_s: Histogram = field(default_factory=lambda: Histogram(REQUEST_S))
    prompt_tokens: Histogram = field(default_factory=lambda: Histogram(REQUEST_TOKENS))
    tokens: Histogram = field(default_factory=lambda: Histogram(REQUEST_TOKENS))
    slo_outcomes: Counter[tuple[str, Outcome]] = field(default_factory=Counter)  # of complete texts, by tier
    promised: Counter[tuple[str, Outcome]] = field(default_factory=Counter)  # of these, what was promised
    slo_tokens: Counter[str] = field(default_factory=Counter)  # of complete texts that attained all, by tier

    def begin(self, num_prompt_tokens: int, now: float, slo: Objectives | None = None) -> "Text":
        """A text is asked for. slo: what it is to keep, of a tier that this node knows, or of none."""
        return Text(self, num_prompt_tokens, Times(now), slo)


@dataclass(slots=True)
class Text:
    """One text, from when it was asked for to its end."""

    texts: Texts
    num_prompt_tokens: int
    times: Times
    slo: Objectives | None = None
    _over: bool = False

    @property
    def num_tokens(self) -> int:
        return self.times.num_tokens

    def delivered(self, num_tokens: int, now: float) -> None:
        """Tokens came, several at once where a draft was accepted."""
        if not num_tokens:
            return
        texts, times = self.texts, self.times
        if times.last_at is not None:
            texts.gap_s.observe(now - times.last_at)
        else:
            texts.first_token_s.observe(now - times.asked_at)
            texts.num_prompt_tokens += self.num_prompt_tokens
        times.delivered(num_tokens, now)
        texts.num_tokens += num_tokens

    def begin_anew(self) -> None:
        """Discards the tokens delivered so far: the text is delivered again from its beginning."""
        self.times = Times(self.times.asked_at)

    def finished(self, reason: FinishReason, now: float, promised: bool | None = None) -> Kept | None:
        """The text is complete. Returns what became of its objectives; None if it had none."""
        self._over = True
        texts, times = self.texts, self.times
        texts.finished[reason] += 1
        texts.whole_s.observe(now - times.asked_at)
        texts.prompt_tokens.observe(self.num_prompt_tokens)
        texts.tokens.observe(times.num_tokens)
        if times.tpot_s is not None:
            texts.per_token_s.observe(times.tpot_s)
        if self.slo is None:
            return None
        kept = times.kept(self.slo, promised)
        texts.slo_outcomes[self.slo.tier or OTHER, kept.outcome] += 1
        texts.promised[self.slo.tier or OTHER, kept.outcome] += bool(promised)
        texts.slo_tokens[self.slo.tier or OTHER] += times.num_tokens if kept.outcome == "attained" else 0
        return kept

    def failed(self, code: str) -> None:
        """Counts a session that was not admitted, or cannot go on."""
        self._over = True
        self.texts.failed[known(code)] += 1

    def left(self) -> None:
        """Nobody reads on; what is over already stays as it ended."""
        if not self._over:
            self._over = True
            self.texts.num_abandoned += 1
