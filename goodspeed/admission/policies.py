"""`admit`, and its policies by name: `dp` (worth the most), `edf` (earliest deadline first), `none` (nothing new)."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TypeAlias

from goodspeed.admission.asks import Ask, check, checked
from goodspeed.admission.budget import Budget, Decoding, Pace
from goodspeed.admission.course import Situation, is_feasible
from goodspeed.admission.dynamic import best
from goodspeed.admission.earliest import earliest
from goodspeed.fair.registry import Registry

Policy: TypeAlias = Callable[[Sequence[Ask], Situation], list[bool]]
"""Says which asks to keep, given them in the order of deadlines, when those promised before can be kept."""

_registry: Registry[Policy] = Registry("admission policy", "no admission policy is called {name!r}")
names = _registry.names


@_registry.register("none")
def _none() -> Policy:
    return lambda ordered, now: [ask.promised for ask in ordered]


@_registry.register("edf")
def _edf() -> Policy:
    return earliest


@_registry.register("dp")
def _dp() -> Policy:
    return best


def admit(
    asks: Sequence[Ask],
    *,
    decoding: Iterable[float | Pace] = (),
    tokens_in: Callable[[float], float],
    pages: int | None = None,
    policy: str = "dp",
) -> list[bool]:
    """Returns which of the asks can be promised what they ask for, beside all that was promised before.

    decoding: TPOTs of promised sessions that decode already, in seconds; or their paces, where their drafts are counted
    on. tokens_in: how many tokens rounds of so many
    seconds carry; it must not fall with time, and may be 0. pages: of memory that are free; None for no bound.

    A set of asks can be kept if, with deadlines d in their order and the sessions n that decode since the last of them,
    the prefill budget of SLOs-Serve never falls below 0 and its memory is free: pb' = pb + PB*(d_i - d_j, n) - p_i (see
    `budget.py`), and if after each of them all who decode then can do so for ever. Of equal deadlines the first ask
    goes first. Asks that were promised before always stay. While these, or those who decode, cannot all be kept,
    nothing new is promised.

    `dp` maximises the sum of values exactly up to 11 asks, and beyond as long as MAX_STATES (`dynamic.py`) suffice;
    else it keeps what `edf` keeps. `none` promises nothing new. Raises ConfigError for an impossible number and for a
    policy that does not exist.
    """
    decide = _registry.create(policy)
    now = _situation(asks, decoding, tokens_in, pages)
    order = sorted(range(len(asks)), key=lambda place: asks[place].deadline_s)
    ordered = [asks[place] for place in order]
    if not is_feasible([ask for ask in ordered if ask.promised], now):
        return [ask.promised for ask in asks]
    kept = dict(zip(order, decide(ordered, now), strict=True))
    return [kept[place] for place in range(len(asks))]


def can_keep(
    asks: Sequence[Ask],
    *,
    decoding: Iterable[float | Pace] = (),
    tokens_in: Callable[[float], float],
    pages: int | None = None,
) -> bool:
    """Returns whether all of the asks can be kept, beside those who decode; everything as in `admit`."""
    now = _situation(asks, decoding, tokens_in, pages)
    return is_feasible(sorted(asks, key=lambda ask: ask.deadline_s), now)


def _situation(
    asks: Sequence[Ask], decoding: Iterable[float | Pace], tokens_in: Callable[[float], float], pages: int | None
) -> Situation:
    check(asks, pages)
    return Situation(Budget(tokens_in), Decoding.of(checked(decoding)), inf if pages is None else pages)
