"""Decides whether draft models that share the verify node's machine may draft: by tokens per second, measured.

Selection knows what it costs to verify a token, not what it costs to draft one: on the same cores draft models slow the
forward pass, the event loop and each other. So where they may be on this machine, stretches of rounds alternate: one of
the other way lies between two of the better one, whose mean it is compared with (a switchback). Elsewhere drafting
costs the verify node nothing, and draft models always may. Drafts from n-grams cost next to nothing anywhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from verify_node.scheduler.commit import Moved
from verify_node.session.session import Session

MANY = 8
"""With fewer sessions models draft at first: with more, on cores that they share with it, they took more of the verify
node's time than they brought."""

SETTLING_ROUNDS, COUNTED_ROUNDS = 8, 24
"""Rounds of a stretch. The first ones are not counted: draft nodes still draft, or do not yet draft, what they may."""

SHARE, FIRST_SHARE = 0.02, 0.1
"""Share of the busy time for stretches of the other way: once it is known to be worse, and until then."""

SIGNIFICANCE, MIN_COMPARISONS = 2.0, 3
"""Standard errors of the mean that a difference must exceed, and comparisons that it must rest on."""

MEMORY = 40
"""Comparisons that are remembered: machines and texts change."""

FIRST_VARIANCE, FIRST_WEIGHT, LARGEST_STEP = 0.15**2, 2, 3.0
"""Variance of a comparison that is believed at first, as if from so many; a larger step than so many standard
deviations counts as one of that size."""

SLACK = 1.4
"""A load is left for a lower one when there are fewer sessions than its least over this, so that they may waver."""


@dataclass
class Stretch:
    """Rounds in a row in which draft models may draft, or may not."""

    num_rounds: int = 0
    seconds: float = 0.0
    tokens: float = 0.0  # in the counted rounds, like the next
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
        """Tokens per second; None if nothing was delivered."""
        return self.tokens / self.counted_s if min(self.tokens, self.counted_s) > 0.0 else None


@dataclass
class Comparison:
    """The rate with draft models over that without, as far as it is known at one load."""

    permits: bool  # while nothing is tried
    mean: float = 0.0  # of the ratio's logarithm
    variance: float = FIRST_VARIANCE
    num: int = 0
    busy_s: float = 0.0
    tried_s: float = 0.0  # of that, the other way

    def learn(self, difference: float) -> None:
        """Takes one comparison, and changes what is permitted if the other way is significantly better."""
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
        """Returns whether there is time for a stretch of the other way."""
        share = SHARE if self.is_significant else FIRST_SHARE
        return self.tried_s + stretch_s <= share * self.busy_s


@dataclass
class ModelDrafts:
    """Says whether draft models may draft until the next round; told of every finished one."""

    is_shared: bool  # draft nodes may be on this machine
    permits: bool = True
    _since: float = 0.0  # end of the last round, or since when somebody asks for something again
    _least: int = 0  # sessions of the load that holds, which ends at twice as many
    _by_load: dict[int, Comparison] = field(default_factory=dict)
    _stretch: Stretch = field(default_factory=Stretch)
    _before: float | None = None  # rate of the last stretch of the better way
    _tried: float | None = None  # rate of the stretch since then, of the other one

    def begin(self, now: float) -> None:
        """Somebody asks for something, and nobody did before: the time until now does not count."""
        self._since = now

    def finished(self, moved: Sequence[Moved], sessions: Sequence[Session], now: float) -> None:
        """A round is done. sessions: those that go on.

        Tokens count with their clients' weights, and not with U'(X) as in the policy: that would fall as the better
        way's goodput rises, until both look alike.
        """
        seconds, self._since = now - self._since, now
        if not self.is_shared or not any(session.uses_model for session in sessions):
            return
        known = self._turn_to(len(sessions))
        known.busy_s += seconds
        known.tried_s += seconds if self.permits != known.permits else 0.0
        self._stretch.observe(sum(len(move.taken) * move.session.client.weight for move in moved), seconds)
        if self._stretch.is_over:
            self._end_stretch(known)

    def _turn_to(self, num_sessions: int) -> Comparison:
        """The comparison at this load; where another one held, what was going on is given up."""
        if not self._least / SLACK <= num_sessions < 2 * self._least:
            self._least = 1 << (num_sessions.bit_length() - 1)
            known = self._by_load.setdefault(self._least, Comparison(self._least < MANY))
            self._before = self._tried = None
            self._begin(permits=known.permits)
        return self._by_load[self._least]

    def _begin(self, *, permits: bool) -> None:
        self.permits, self._stretch = permits, Stretch()

    def _end_stretch(self, known: Comparison) -> None:
        rate, stretch_s = self._stretch.rate, self._stretch.seconds
        if self.permits != known.permits:
            self._tried = rate
            self._begin(permits=known.permits)
            return
        was_permitted = known.permits
        if rate and self._before and self._tried:
            difference = math.log(self._tried / math.sqrt(self._before * rate))
            known.learn(-difference if was_permitted else difference)
        is_same = known.permits == was_permitted
        self._before, self._tried = (rate if is_same else None), None
        tries = self._before is not None and known.may_try(stretch_s)
        self._begin(permits=known.permits != tries)
