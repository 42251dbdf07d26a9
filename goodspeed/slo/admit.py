"""Admission control: a policy decides which requests are promised their service level.

Ours are `dp` (most value), `edf` (earliest deadline first) and `none` (nothing new); docs/POLICY.md has a user's own.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf

from goodspeed.slo import dp  # noqa: F401  registers itself, as `edf.py` does, which it falls back on
from goodspeed.slo.feasible import Ask, Budget, Course, Decoding
from goodspeed.slo.policies import ADMISSION

__all__ = ["ADMISSION", "Ask", "admit"]


def admit(
    asks: Sequence[Ask],
    *,
    decoding: Iterable[float] | Decoding = (),
    tokens_in: Callable[[float], float],
    pages: int | None = None,
    policy: str = "dp",
) -> list[bool]:
    """Decides which requests to admit in addition to all earlier promises; returns one flag per request.

    decoding: TPOTs of promised sessions that already decode, in seconds, or their summary. tokens_in: tokens that
    rounds carry within a time in seconds; must not decrease with time, and may be 0. pages: free KV pages; None: no
    bound. Deadlines are finite, and TPOTs and values finite and above 0.

    A set is feasible if two conditions hold at each of its deadlines d, in their order. First, the prefill budget and
    the free pages stay at 0 or above: pb' = pb + PB*(d_i - d_j, n) - p_i, where n are the sessions that decode since
    the preceding deadline d_j (see `feasible.py`). Second, all sessions that decode after d can do so indefinitely.
    Among equal deadlines, the first request goes first. Promised requests always stay. If promised requests and
    decoding sessions are not all feasible, nothing new is admitted.

    `dp` maximises the sum of values, exactly for up to 11 requests and for more while MAX_STATES (`dp.py`) suffice;
    else it admits what `edf` admits. Raises ConfigError for an unknown policy.
    """
    choose = ADMISSION.find(policy)
    if not isinstance(decoding, Decoding):
        decoding = Decoding.of(decoding)
    now = Course(Budget(tokens_in), decoding, inf if pages is None else pages)
    order = sorted(range(len(asks)), key=lambda place: asks[place].deadline_s)
    ordered = [asks[place] for place in order]
    if now.after_all(ask for ask in ordered if ask.promised) is None:
        return [ask.promised for ask in asks]
    kept = dict(zip(order, choose(ordered, now), strict=True))
    return [kept[place] for place in range(len(asks))]
