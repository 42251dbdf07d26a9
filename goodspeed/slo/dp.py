"""`dp`: chooses the feasible set of requests with the largest total value (SLOs-Serve, Eq. 5).

The program goes over the requests in the order of deadlines. For each number of accepted requests per tier it retains
the Pareto set of (value, pages, prefill budget). The numbers per tier determine the decoding sessions, and thereby the
spare tokens of later rounds; while no session decodes, these also depend on the latest accepted deadline. A state can
be dropped if another state with the same numbers equals or dominates it. The result is as good as a search of all
subsets.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

from goodspeed.slo.edf import earliest
from goodspeed.slo.feasible import SLACK, Ask, Course
from goodspeed.slo.policies import ADMISSION

MAX_STATES = (1 << 12) - 1
"""Most states of one decision, so that it takes at most about 40 ms. 11 requests never need more: their prefixes have
4,094 subsets in total."""

WORTH_IT = 1e-9
"""Relative gain in value that a set needs over that of `edf`: values are sums of rounded numbers."""

State: TypeAlias = tuple[float, float, float, int]
"""(-value, pages in use, -remaining prefill budget, bit mask of accepted requests). Smaller is better in the first
three, so sorting puts the better of two states that compare first."""

Key: TypeAlias = tuple[int, float]
"""(Accepted requests, as a number with a digit per tier; latest accepted deadline while no session decodes, else 0)."""


@ADMISSION.register("dp")
def best(ordered: Sequence[Ask], now: Course) -> list[bool]:
    """Decides which requests to admit; promised ones stay. ordered: by deadline; the promised ones must be feasible.

    Admits everything if that is feasible. Returns the choice of `edf` if the search would take more than MAX_STATES, or
    if no set is worth more.
    """
    if now.after_all(ordered) is not None:
        return [True] * len(ordered)
    kept = earliest(ordered, now)
    value = sum(ask.value for ask, is_kept in zip(ordered, kept, strict=True) if is_kept)
    found = _Search(ordered, now, value * (1.0 + WORTH_IT)).run()
    return kept if found is None else [bool(found >> place & 1) for place in range(len(ordered))]


class _Search:
    """Searches the states of one decision, over the requests in the order of deadlines."""

    def __init__(self, ordered: Sequence[Ask], now: Course, least: float) -> None:
        """least: value that a set must exceed to be found."""
        self.ordered, self.budget, self.pages = ordered, now.budget, now.pages
        after = [*accumulate((ask.value for ask in reversed(ordered[1:])), initial=0.0)][::-1]
        self.enough = [least - value for value in after]  # value that a state after each request must exceed
        self.digits = _digits([ask.tpot_s for ask in ordered])
        self.decoding = {0: now.decoding}  # by the first number of `Key`
        self.rates = {0: self.budget.rate(now.decoding)}

    def run(self) -> int | None:
        """Returns the best set as a bit mask; None if there is none, or if there are too many states."""
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
        """Returns the states with and without one more request, at its deadline."""
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
        """Returns the states in which the request is feasible, with the request added."""
        ask, bit = self.ordered[place], 1 << place
        value, pages, tokens = ask.value, ask.pages, ask.prompt_tokens - gained
        most_pages, most_left, most = self.pages - pages, SLACK - tokens, value - self.enough[place]
        return [
            (minus - value, used + pages, left + tokens, kept | bit)
            for minus, used, left, kept in states
            if used <= most_pages and left <= most_left and minus < most
        ]

    def _joined(self, code: int, digit: int, tpot_s: float | None) -> bool:
        """Returns whether the decoding sessions, with one more of a tier, can decode indefinitely."""
        if (joined := code + digit) not in self.rates:
            self.decoding[joined] = decoding = self.decoding[code].with_one(tpot_s)
            self.rates[joined] = self.budget.rate(decoding)
        return self.rates[joined] >= 0.0


def _digits(tpots: Sequence[float | None]) -> dict[float | None, int]:
    """Returns the number that one more session of each tier adds to `Key`'s first number. No TPOT is also a tier."""
    digits, weight = {}, 1
    for tpot_s, number in Counter(tpots).items():
        digits[tpot_s] = weight
        weight *= number + 1
    return digits


def pareto(states: list[State]) -> list[State]:
    """Returns the states that no other state equals or dominates, the most valuable first."""
    if len(states) < 2:
        return states
    states.sort()
    found: list[State] = []
    steps: list[float] = []  # pages of the found states on the front of pages and budget, rising
    lefts: list[float] = []  # minus the remaining budget of these states, falling
    for state in states:
        _, pages, left, _ = state
        at = bisect_right(steps, pages)
        if at and lefts[at - 1] <= left:
            continue  # dominated by a state with at least its value and budget, and at most its pages
        found.append(state)
        first = at - 1 if at and steps[at - 1] == pages else at
        end = at
        while end < len(lefts) and lefts[end] >= left:
            end += 1
        steps[first:end], lefts[first:end] = [pages], [left]
    return found
