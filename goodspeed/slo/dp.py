"""`dp`: the requests that are worth the most of all sets that can be kept (SLOs-Serve, Eq. 5).

The program goes over the requests in the order of deadlines. For each number accepted per tier it keeps the Pareto set
of (value, pages, prefill budget): these numbers say who decodes, and so what rounds have to spare from then on. While
nobody decodes, that depends on the last accepted deadline too. So dropping a state that another of the same numbers
equals or betters loses nothing, and the result is as good as that of a search of all subsets.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

from goodspeed.slo.edf import earliest
from goodspeed.slo.feasible import SLACK, Ask, Course

MAX_STATES = (1 << 12) - 1
"""States of one decision, so that it ends within some 40 ms. Of 11 requests there never are more: they have 4,094
subsets, counting those of the first, of the first two, and so on."""

WORTH_IT = 1e-9
"""By so much, as a share, another set than that of `edf` must be worth more: values are sums of rounded numbers."""

State: TypeAlias = tuple[float, float, float, int]
"""Minus the value, pages in use, minus the prefill budget that is left, and a bit for each accepted request. So of two
states that compare the lower is no worse in the first number in which they differ."""

Key: TypeAlias = tuple[int, float]
"""The accepted requests, as a number with a digit for each tier; and while nobody decodes the last accepted deadline,
else 0."""


def best(ordered: Sequence[Ask], now: Course) -> list[bool]:
    """Says which requests to keep, all promised ones among them. These can be kept; all are in the order of deadlines.

    If everything can be kept, that is it. Where the search would take more than MAX_STATES, and where nothing is worth
    more, it is what `edf` keeps.
    """
    if now.after_all(ordered) is not None:
        return [True] * len(ordered)
    kept = earliest(ordered, now)
    value = sum(ask.value for ask, is_kept in zip(ordered, kept, strict=True) if is_kept)
    found = _Search(ordered, now, value * (1.0 + WORTH_IT)).run()
    return kept if found is None else [bool(found >> place & 1) for place in range(len(ordered))]


class _Search:
    """One decision's states, over the requests in the order of deadlines."""

    def __init__(self, ordered: Sequence[Ask], now: Course, least: float) -> None:
        """least: only sets worth more than that are looked for."""
        self.ordered, self.budget, self.pages = ordered, now.budget, now.pages
        after = [0.0, *accumulate(ask.value for ask in reversed(ordered))][-2::-1]
        self.enough = [least - value for value in after]  # what a state after each request must exceed
        self.digits = _digits([ask.tpot_s for ask in ordered])
        self.decoding = {0: now.decoding}  # by the numbers accepted
        self.rates = {0: self.budget.rate(now.decoding)}

    def run(self) -> int | None:
        """The requests of the best set, a bit for each; None where there is none, or too many states."""
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
        """The states with and without one more request, at its deadline."""
        found: defaultdict[Key, list[State]] = defaultdict(list)
        enough, digit = self.enough[place], self.digits[ask.tpot_s]
        for (code, since_s), states in fronts.items():
            gained = 0.0
            if not self.decoding[code].load:
                gained = self.budget.tokens(ask.deadline_s - since_s, self.decoding[code])
            elif elapsed_s > 0.0 and (spare := self.rates[code] * elapsed_s):
                states = [(value, pages, left - spare, kept) for value, pages, left, kept in states]
            if not ask.promised:
                found[code, since_s] += [state for state in states if -state[0] > enough]
            if self._joined(code, digit, ask.tpot_s):
                is_idle = not self.decoding[code + digit].load
                found[code + digit, ask.deadline_s if is_idle else 0.0] += self._taken(states, place, gained)
        return {key: pareto(states) for key, states in found.items() if states}

    def _taken(self, states: Sequence[State], place: int, gained: float) -> list[State]:
        """The states in which the request can be kept, with it."""
        ask, bit = self.ordered[place], 1 << place
        value, pages, tokens = ask.value, ask.pages, ask.prompt_tokens - gained
        most_pages, most_left, most = self.pages - pages, SLACK - tokens, value - self.enough[place]
        return [
            (minus - value, used + pages, left + tokens, kept | bit)
            for minus, used, left, kept in states
            if used <= most_pages and left <= most_left and minus < most
        ]

    def _joined(self, code: int, digit: int, tpot_s: float | None) -> bool:
        """Returns whether with one more session of a tier those who decode can do so for ever."""
        if (joined := code + digit) not in self.rates:
            self.decoding[joined] = decoding = self.decoding[code].with_one(tpot_s)
            self.rates[joined] = self.budget.rate(decoding)
        return self.rates[joined] >= 0.0


def _digits(tpots: Sequence[float | None]) -> dict[float | None, int]:
    """The number that one more session of each tier adds to `Key`'s first. No TPOT is a tier, too."""
    digits, weight = {}, 1
    for tpot_s, number in Counter(tpots).items():
        digits[tpot_s] = weight
        weight *= number + 1
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
