"""Decides whether draft models that share the verify node's machine may draft, by measured tokens per second.

Selection knows the cost of verifying a token, not of drafting one: on the same cores, draft models slow the forward
pass, the event loop and each other. So where they may share this machine, stretches of rounds alternate: a stretch in
the other mode lies between two in the better mode, and is compared with their mean (a switchback). On other machines
drafting costs the verify node nothing, and draft models may always draft. N-gram drafts cost next to nothing anywhere.
The verify node's own draft model is compared in the same way.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from verify_node.scheduler.commit import Moved
from verify_node.session.session import Session

MANY, LEAST_TOKEN_S = 8, 0.004
"""Before the first comparison, draft models may draft if there are fewer than MANY sessions, or if a token without
drafts takes LEAST_TOKEN_S seconds or longer. On shared cores a draft model and its messages take some milliseconds for
each token that they bring: with eight sessions they slowed a target of 13M parameters (2 ms a token), and made one of
116M (9 ms) 1.3 times as fast."""

SETTLING_ROUNDS, COUNTED_ROUNDS = 8, 24
"""Rounds of a stretch. The first are not counted, since draft nodes still act on their previous permissions."""

SHARE, FIRST_SHARE = 0.02, 0.1
"""Share of the busy time for stretches in the other mode: once known to be worse, and until then."""

SIGNIFICANCE, MIN_COMPARISONS = 2.0, 3
"""Standard errors of the mean that a difference must exceed, and comparisons needed."""

MEMORY = 40
"""Comparisons that count; older ones decay, since machines and texts change."""

FIRST_VARIANCE, FIRST_WEIGHT, LARGEST_STEP = 0.15**2, 2, 3.0
"""Prior variance of a comparison, and its weight in comparisons; a step larger than LARGEST_STEP standard deviations is
limited to that size."""

SLACK = 1.4
"""Hysteresis: the load drops only below its least number of sessions over SLACK, since that number wavers."""


@dataclass
class Stretch:
    """Successive rounds in which draft models may draft, or may not."""

    num_rounds: int = 0
    seconds: float = 0.0
    tokens: float = 0.0  # in the counted rounds, like `counted_s`
    counted_s: float = 0.0

    def observe(self, tokens: float, seconds: float) -> None:
        self.num_rounds += 1
        self.seconds += seconds
        if self.num_rounds > SETTLING_ROUNDS:
            self.tokens += tokens
            self.counted_s += seconds

    @property
    def is_over(self) -> bool:
        return self.num_rounds >= SETTLING_ROUNDS + COUNTED_ROUNDS

    @property
    def rate(self) -> float | None:
        """Tokens per second; None if none were delivered."""
        return self.tokens / self.counted_s if min(self.tokens, self.counted_s) > 0.0 else None


@dataclass
class Comparison:
    """Compares the rate with draft models to the rate without, at one load."""

    permits: bool  # in the better mode
    mean: float = 0.0  # of the ratio's logarithm
    variance: float = FIRST_VARIANCE
    num: int = 0
    busy_s: float = 0.0
    tried_s: float = 0.0  # of the busy time, in the other mode

    def learn(self, difference: float) -> None:
        """Updates the mean with one comparison; changes the mode if the other is significantly better."""
        self.num += 1
        largest = LARGEST_STEP * math.sqrt(self.variance)
        step = max(-largest, min(difference - self.mean, largest))
        self.mean += step / min(self.num, MEMORY)
        self.variance += (step * step - self.variance) / min(self.num + FIRST_WEIGHT, MEMORY)
        if self.is_significant:
            self.permits = self.mean > 0.0

    @property
    def is_significant(self) -> bool:
        error = math.sqrt(self.variance / max(1, min(self.num, MEMORY)))
        return self.num >= MIN_COMPARISONS and abs(self.mean) > SIGNIFICANCE * error

    def may_try(self, stretch_s: float) -> bool:
        """True if there is time for a stretch in the other mode."""
        share = SHARE if self.is_significant else FIRST_SHARE
        return self.tried_s + stretch_s <= share * self.busy_s


@dataclass
class ModelDrafts:
    """Decides whether draft models may draft until the next round, from every finished round."""

    is_shared: bool  # the draft models may run on this machine
    plain_s: Callable[[int], float]  # expected seconds of a round without drafts, by its number of sessions
    drafts_first: bool = False  # they draft at any load until compared
    permits: bool = True
    uses: Callable[[Session], bool] = attrgetter("uses_model")  # whether these draft models may draft for a session
    _since: float = 0.0  # end of the previous round, or of an idle time since then
    _least: int = 0  # least number of sessions at the current load; the load ends at twice as many
    _by_load: dict[int, Comparison] = field(default_factory=dict)
    _stretch: Stretch = field(default_factory=Stretch)
    _before: float | None = None  # rate of the previous stretch in the better mode
    _tried: float | None = None  # rate of the stretch in the other mode since then

    @property
    def is_trying(self) -> bool:
        """True in a stretch in the other mode."""
        known = self._by_load.get(self._least)
        return known is not None and self.permits != known.permits

    def begin(self, now: float) -> None:
        """Ends an idle time, which does not count."""
        self._since = now

    def finished(self, moved: Sequence[Moved], sessions: Sequence[Session], now: float) -> None:
        """Updates the comparison after a finished round. sessions: those that continue.

        Tokens count with their clients' weights, not with U'(X) as in the policy, which falls as the better mode's
        goodput rises, until both modes look alike.
        """
        seconds, self._since = now - self._since, now
        if not self.is_shared or not any(map(self.uses, sessions)):
            return
        known = self._turn_to(len(sessions))
        known.busy_s += seconds
        known.tried_s += seconds if self.permits != known.permits else 0.0
        self._stretch.observe(sum(len(move.taken) * move.session.client.weight for move in moved), seconds)
        if self._stretch.is_over:
            self._end_stretch(known)

    def give_up_trial(self) -> None:
        """Returns to the better mode without a result."""
        self._before = self._tried = None
        self._begin(permits=self._by_load[self._least].permits)

    def _turn_to(self, num_sessions: int) -> Comparison:
        """Returns the comparison at this load; a change of load discards the current stretch."""
        if not self._least / SLACK <= num_sessions < 2 * self._least:
            self._least = 1 << (num_sessions.bit_length() - 1)
            is_light = self._least < MANY or self.plain_s(self._least) >= LEAST_TOKEN_S * self._least
            self._by_load.setdefault(self._least, Comparison(self.drafts_first or is_light))
            self.give_up_trial()
        return self._by_load[self._least]

    def _begin(self, *, permits: bool) -> None:
        self.permits, self._stretch = permits, Stretch()

    def _end_stretch(self, comparison: Comparison) -> None:
        rate, stretch_s = self._stretch.rate, self._stretch.seconds
        if self.permits != comparison.permits:
            self._tried = rate
            self._begin(permits=comparison.permits)
            return
        was_permitted = comparison.permits
        if rate and self._before and self._tried:
            gain_of_other = math.log(self._tried / math.sqrt(self._before * rate))
            comparison.learn(-gain_of_other if was_permitted else gain_of_other)
        is_same = comparison.permits == was_permitted
        self._before, self._tried = (rate if is_same else None), None
        tries = self._before is not None and comparison.may_try(stretch_s)
        self._begin(permits=not comparison.permits if tries else comparison.permits)


def compare(
    nodes: ModelDrafts,
    own: ModelDrafts,
    moved: Sequence[Moved],
    sessions: Sequence[Session],
    now: float,
    *,
    own_rests: bool = False,
) -> None:
    """Updates both comparisons, that of draft nodes' models and of the verify node's own, after a finished round.

    While one tries its other mode, the other one pauses: a stretch must show the effect of one of them alone. A trial
    that stood still, for want of sessions or since the model rested, is given up if the other one tries meanwhile.
    own_rests: the verify node's own model may not draft, in either mode, so there is nothing to compare.
    """
    if nodes.is_trying and own.is_trying:
        own.give_up_trial()
    for one, other in ((nodes, own), (own, nodes)):
        pauses = other.is_trying and any(map(other.uses, sessions)) and not (other is own and own_rests)
        if pauses or (one is own and own_rests):
            one.begin(now)
        else:
            one.finished(moved, sessions, now)
