"""The knee of a latency model: the budget up to which drafted tokens are nearly free, for `--budget auto`."""

from goodspeed.fair.latency.models import CostModel

SESSIONS, CONTEXT = 8, 256
"""The assumed round when no client is connected yet: number of sessions, and cached tokens of each."""

STRETCH = 2.0
"""Longest round, relative to one without drafts."""


def knee(model: CostModel, num_sessions: int, context_tokens: int, *, max_budget: int, stretch: float = STRETCH) -> int:
    """Returns the largest budget C, 1 to max_budget, whose round takes at most `stretch` times one without drafts.

    A round that lasts twice as long has to bring twice the tokens: at usual acceptance rates (0.7 and up) drafts of
    three or more do. Where reading the weights bounds the pass, tokens are free up to the roofline's ridge and C lies
    beyond it; where time is nearly linear in tokens, as on a CPU, there is no ridge, and C is where drafted tokens take
    as much time as all the rest of the round (Hockney's half-performance length).
    """
    if max_budget < 1 or num_sessions < 1 or stretch < 1.0:
        raise ValueError(f"no budget within 1 and {max_budget} for {num_sessions} sessions and stretch {stretch}")
    longest_s = stretch * model.round_s(num_sessions, num_sessions, context_tokens)
    low, high = 1, max_budget  # the time never falls with tokens
    while low < high:
        middle = (low + high + 1) // 2
        if model.round_s(num_sessions + middle, num_sessions, context_tokens) <= longest_s:
            low = middle
        else:
            high = middle - 1
    return low


def usual_knee(model: CostModel, most_tokens: int) -> int:
    """Returns the knee of a round of SESSIONS with CONTEXT each, with at most `most_tokens` tokens in it."""
    return knee(model, SESSIONS, SESSIONS * CONTEXT, max_budget=max(1, most_tokens - SESSIONS))


def describe(model: CostModel, budget: int) -> str:
    """Returns a sentence on what a budget means for that round."""
    plain, drafted = (1e3 * model.round_s(SESSIONS + extra, SESSIONS, SESSIONS * CONTEXT) for extra in (0, budget))
    return (
        f"{budget} drafted tokens a round: {SESSIONS} sessions with {CONTEXT} cached tokens each take {plain:.1f} ms "
        f"without drafts and {drafted:.1f} ms with them"
    )
