"""Admission control: a policy decides which requests are promised their service level.

Ours are `dp` (most value), `edf` (earliest deadline first) and `none` (nothing new); docs/POLICY.md has a user's own.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf, isfinite

from goodspeed.errors import ConfigError
from goodspeed.slo import dp  # noqa: F401  registers itself, as `edf.py` does, which it falls back on
from goodspeed.slo.feasible import Ask, Budget, Course, Decoding
from goodspeed.slo.policies import ADMISSION

__all__ = ["Ask", "admit", "can_keep", "names"]


def names() -> list[str]:
    """Returns the policy names in alphabetical order."""
    return [*ADMISSION.names]


def admit(
    asks: Sequence[Ask],
    *,
    decoding: Iterable[float] | Decoding = (),
    tokens_in: Callable[[float], float],
    pages: int | None = None,
    policy: str = "dp",
) -> list[bool]:
    """Decides which requests to admit in addition to all earlier promises; returns one flag per request.

    decoding: TPOTs of promised sessions that already decode, in seconds. tokens_in: tokens that rounds carry within a
    time in seconds; must not decrease with time, and may be 0. pages: free KV pages; None: no bound.

    A set is feasible if two conditions hold at each of its deadlines d, in their order. First, the prefill budget and
    the free pages stay at 0 or above: pb' = pb + PB*(d_i - d_j, n) - p_i, where n are the sessions that decode since
    the preceding deadline d_j (see `feasible.py`). Second, all sessions that decode after d can do so indefinitely.
    Among equal deadlines, the first request goes first. Promised requests always stay. If promised requests and
    decoding sessions are not all feasible, nothing new is admitted.

    `dp` maximises the sum of values, exactly for up to 11 requests and for more while MAX_STATES (`dp.py`) suffice;
    else it admits what `edf` admits. Raises ConfigError for an impossible number or an unknown policy.
    """
    choose = ADMISSION.find(policy)
    if not isinstance(decoding, Decoding):
        decoding = Decoding.of(_checked(decoding))
    for place, ask in enumerate(asks):
        _check(place, ask)
    if pages is not None and not _is_count(pages):
        raise ConfigError(f"pages is {pages}; it must be 0 or more, or None for no bound")
    now = Course(Budget(tokens_in), decoding, inf if pages is None else pages)
    order = sorted(range(len(asks)), key=lambda place: asks[place].deadline_s)
    ordered = [asks[place] for place in order]
    if now.after_all(ask for ask in ordered if ask.promised) is None:
        return [ask.promised for ask in asks]
    kept = dict(zip(order, choose(ordered, now), strict=True))
    return [kept[place] for place in range(len(asks))]


def can_keep(
    asks: Iterable[Ask],
    *,
    decoding: Iterable[float] | Decoding = (),
    tokens_in: Callable[[float], float],
    pages: int | None = None,
) -> bool:
    """Returns whether all requests are feasible together with the decoding sessions; as in `admit`, but unchecked."""
    running = decoding if isinstance(decoding, Decoding) else Decoding.of(decoding)
    now = Course(Budget(tokens_in), running, inf if pages is None else pages)
    return now.after_all(sorted(asks, key=lambda ask: ask.deadline_s)) is not None


def _checked(tpots: Iterable[float]) -> list[float]:
    found = list(tpots)
    for tpot_s in found:
        if not _is_positive(tpot_s):
            raise ConfigError(f"a TPOT in decoding is {tpot_s} s; each must be finite and above 0")
    return found


def _check(place: int, ask: Ask) -> None:
    for name, value, is_right, wanted in (
        ("deadline_s", ask.deadline_s, isfinite(ask.deadline_s), "finite"),
        ("prompt_tokens", ask.prompt_tokens, _is_count(ask.prompt_tokens), "finite, and 0 or more"),
        ("tpot_s", ask.tpot_s, ask.tpot_s is None or _is_positive(ask.tpot_s), "finite and above 0, or None"),
        ("pages", ask.pages, _is_count(ask.pages), "finite, and 0 or more"),
        ("value", ask.value, _is_positive(ask.value), "finite and above 0"),
    ):
        if not is_right:
            raise ConfigError(f"ask {place} is impossible: {name} is {value} and must be {wanted}")


def _is_count(value: float) -> bool:
    return 0 <= value < inf


def _is_positive(value: float) -> bool:
    return 0.0 < value < inf
