"""How much each tier drafts so that rounds have the most tokens to spare for prompts (SLOs-Serve, App. D).

A draft lets a session wait longer for its round, and a longer round carries more tokens for its fixed time. Here the
draft model is one, beside the target, and its drafts are waited for: the paper's setting. For drafts that come from
afar see `remote.py`. Knows nothing about requests.
"""

from collections.abc import Callable, Mapping
from math import ceil, inf, log
from typing import NamedTuple

from goodspeed.errors import ConfigError

MOST_VERIFIED = 10
"""Longest length that is tried; the paper says that lengths beyond it bring nothing."""

SLACK = 1e-9
"""By so much a length may exceed a whole number and be it: logarithms are rounded."""


class Lengths(NamedTuple):
    """What each tier has verified in a round, and what that brings."""

    verified: dict[float, int]  # sl by TPOT: one token and the drafted ones, of which there are sl - 1
    round_s: float  # T
    prefill_rate: float  # tokens per second for prompts


def accepted(alpha: float, verified: int) -> float:
    """Acc(sl): tokens that a round brings a session that has so many verified, (1 - alpha^sl) / (1 - alpha)."""
    return sum(alpha**position for position in range(verified))


def lengths(
    alpha: float,
    tiers: Mapping[float, int],
    tokens_in: Callable[[float, int], float],
    *,
    most: int = MOST_VERIFIED,
) -> Lengths | None:
    """The lengths that maximise (tokens_in(T, max sl) - sum n sl) / T, with T = min tau Acc(sl); None if none is >= 0.

    alpha: acceptance rate. tiers: how many sessions decode, by TPOT in seconds. tokens_in: tokens that a round of so
    many seconds carries when the draft model has made so many steps; it falls in these. most: longest length.

    One tier and its length j decide the round's time, and each other tier has the shortest length that lasts as long:
    the smallest sl with tau Acc(sl) >= T. All tiers and lengths j are tried, so nothing is better but for rounding.
    Raises ConfigError for numbers that are impossible.
    """
    _check(alpha, tiers, most)
    found: Lengths | None = None
    for bottleneck_s in tiers:
        for number in range(1, most + 1):
            verified = {tpot_s: _shortest(alpha, tpot_s, bottleneck_s, number) for tpot_s in tiers}
            if max(verified.values()) > most:
                continue
            one = outcome(alpha, tiers, {tpot_s: int(each) for tpot_s, each in verified.items()}, tokens_in)
            if one.prefill_rate >= (0.0 if found is None else found.prefill_rate):
                found = one
    return found


def outcome(
    alpha: float, tiers: Mapping[float, int], verified: Mapping[float, int], tokens_in: Callable[[float, int], float]
) -> Lengths:
    """What given lengths bring; tiers and tokens_in as in `lengths`."""
    round_s = min(tpot_s * accepted(alpha, verified[tpot_s]) for tpot_s in tiers)
    spare = tokens_in(round_s, max(verified.values())) - sum(tiers[tpot_s] * verified[tpot_s] for tpot_s in tiers)
    return Lengths(dict(verified), round_s, spare / round_s)


def _shortest(alpha: float, tpot_s: float, bottleneck_s: float, number: int) -> float:
    """The shortest length with which a tier keeps its TPOT in rounds as long as another's length allows; or infinity.

    ceil(ln((tau_k - tau_i + alpha^j tau_i) / tau_k) / ln alpha), 1 at least.
    """
    if alpha in (0.0, 1.0):  # a round brings 1 token, or all that are verified
        needed = bottleneck_s / tpot_s * accepted(alpha, number)
        return max(1, ceil(needed - SLACK)) if alpha or needed <= 1.0 + SLACK else inf
    left = (tpot_s - bottleneck_s + alpha**number * bottleneck_s) / tpot_s
    return max(1, ceil(log(left) / log(alpha) - SLACK)) if left > 0.0 else inf


def _check(alpha: float, tiers: Mapping[float, int], most: int) -> None:
    if not 0.0 <= alpha <= 1.0:
        raise ConfigError(f"alpha is {alpha}; an acceptance rate is from 0 to 1")
    if not tiers or not all(0.0 < tpot_s < inf and 0 <= number < inf for tpot_s, number in tiers.items()):
        raise ConfigError(
            f"the tiers are {dict(tiers)}; there must be one, each TPOT above 0 and each number 0 or more"
        )
    if most < 1:
        raise ConfigError(f"most is {most}; a round verifies one token at least")
