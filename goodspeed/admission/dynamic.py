"""`dp`: the asks whose promises are worth the most of all sets that can be kept (SLOs-Serve, Eq. 5).

Over the asks in the order of their deadlines it keeps, for each number accepted per tier, the Pareto set of (value,
pages, prefill budget). These numbers say who decodes, and so what rounds have to spare from now on; while nobody
decodes, that depends on the last accepted deadline too. So a state that is no better in anything than another of the
same numbers is never missed, and the result is as good as that of a search of all subsets.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from goodspeed.admission.asks import Ask
from goodspeed.admission.budget import SLACK, Pace
from goodspeed.admission.course import Situation, is_feasible
from goodspeed.admission.earliest import earliest

MAX_STATES = (1 << 12) - 1
"""States of one decision, so that it ends within some 40 ms. Of 11 asks there never are more: they have 4,094 subsets,
counting those of the first, of the first two, and so on."""

WORTH_IT = 1e-9
"""By so much, as a share, another set than that of `edf` must be worth more: values are sums of rounded numbers."""

State: TypeAlias = tuple[float, float, float, int]
"""Minus the value, pages in use, minus the prefill budget that is left, and a bit for each accepted ask. So of two
states that compare the lower is no worse in the first number in which they differ."""

Key: TypeAlias = tuple[int, float]
"""Who was accepted, as a number with a digit for each tier; while nobody decodes the last accepted deadline, else 0."""


def best(ordered: Sequence[Ask], now: Situation) -> list[bool]:
    """Which asks to keep, all promised ones among them. These can be kept; all asks are in the order of deadlines.

    If everything can be kept, that is it. Where the search would take more than MAX_STATES it is what `edf` keeps, and
    so it is where nothing is worth more.
    """
    if is_feasible(ordered, now):
        return [True] * len(ordered)
    kept = earliest(ordered, now)
    value = sum(ask.value for ask, is_kept in zip(ordered, kept, strict=True) if is_kept)
    found = _Search(ordered, now, value * (1.0 + WORTH_IT)).run()
    return kept if found is None else [bool(found >> place & 1) for place in range(len(ordered))]


class _Search:
    """One decision's states, over the asks in the order of deadlines."""

    def __init__(self, ordered: Sequence[Ask], now: Situation, least: float) -> None:
        """least: only sets worth more than that are looked for."""
        self.ordered, self.budget, self.pages = ordered, now.budget, now.pages
        after = [0.0, *accumulate(ask.value for ask in reversed(ordered))][-2::-1]
        self.enough = [least - value for value in after]  # what a state after each ask must exceed
        self.paces = [ask.pace for ask in ordered]
        self.digits = _digits(self.paces)
        self.decoding = {0: now.decoding}  # by the numbers accepted
        self.rates = {0: self.budget.rate(now.decoding)}

    def run(self) -> int | None:
        """The asks of the best set, a bit for each; None where there is none, or too many states."""
        fronts: dict[Key, list[State]] = {(0, 0.0): [(0.0, 0.0, 0.0, 0)]}
        num_states, at_s = 0, 0.0
        for place, ask in enumerate(self.ordered):
            if ask.deadline_s < 0.0:
                continue
            fronts = self._after(fronts, place, ask, ask.deadline_s - at_s)
            num_states, at_s = num_states + sum(map(len, fronts.values())), ask.deadline_s
            if num_states > MAX_STATES:
                return None
        found = min((states[0] for states in fronts.values()), default=None)
        return None if found is None else found[3]

    def _after(self, fronts: dict[Key, list[State]], place: int, ask: Ask, elapsed_s: float) -> dict[Key, list[State]]:
        """The states with and without one more ask, at its deadline."""
        found: defaultdict[Key, list[State]] = defaultdict(list)
        enough, pace = self.enough[place], self.paces[place]
        digit = self.digits[pace]
        for (code, since_s), states in fronts.items():
            gained = 0.0
            if not self.decoding[code].load:
                gained = self.budget.tokens(ask.deadline_s - since_s, self.decoding[code])
            elif elapsed_s > 0.0 and (spare := self.rates[code] * elapsed_s):
                states = [(value, pages, left - spare, kept) for value, pages, left, kept in states]
            if not ask.promised:
                found[code, since_s] += [state for state in states if -state[0] > enough]
            if self._joined(code, digit, pace):
                is_idle = not self.decoding[code + digit].load
                found[code + digit, ask.deadline_s if is_idle else 0.0] += self._taken(states, place, gained)
        return {key: pareto(states) for key, states in found.items() if states}

    def _taken(self, states: Sequence[State], place: int, gained: float) -> list[State]:
        """Those of the states in which the ask can be kept, with it."""
        ask, bit = self.ordered[place], 1 << place
        value, pages, tokens = ask.value, ask.pages, ask.prompt_tokens - gained
        most_pages, most_left, most = self.pages - pages, SLACK - tokens, value - self.enough[place]
        return [
            (minus - value, used + pages, left + tokens, kept | bit)
            for minus, used, left, kept in states
            if used <= most_pages and left <= most_left and minus < most
        ]

    def _joined(self, code: int, digit: int, pace: Pace | None) -> bool:
        """Whether with one more session of a tier those who decode can do so for ever."""
        if (joined := code + digit) not in self.rates:
            self.decoding[joined] = decoding = self.decoding[code].with_one(pace)
            self.rates[joined] = self.budget.rate(decoding)
        return self.rates[joined] >= 0.0


def _digits(paces: Iterable[Pace | None]) -> dict[Pace | None, int]:
    """What one more session of each tier adds to the number that says who was accepted. Without a TPOT it is a tier."""
    own = list(paces)
    digits, weight = {}, 1
    for pace in dict.fromkeys(own):
        digits[pace] = weight
        weight *= own.count(pace) + 1
    return digits


def pareto(states: list[State]) -> list[State]:
    """The states that no other one equals or betters in everything, the most valuable first."""
    if len(states) < 2:
        return states
    states.sort()
    found: list[State] = []
    steps: list[float] = []  # pages of the found states that are best in pages and budget alone, rising
    lefts: list[float] = []  # and minus the budget that these have left, falling
    for state in states:
        _, pages, left, _ = state
        at = bisect_right(steps, pages)
        if at and lefts[at - 1] <= left:
            continue  # one that is worth no less needs no more pages, and has no less left
        found.append(state)
        first = at - 1 if at and steps[at - 1] == pages else at
        end = at
        while end < len(lefts) and lefts[end] >= left:
            end += 1
        steps[first:end], lefts[first:end] = [pages], [left]
    return found
