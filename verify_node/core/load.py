"""The load of this replica, as reported to the other replicas. No I/O, no clock, no torch."""

from collections import Counter
from collections.abc import Collection, Iterable

from goodspeed.fair.refined import Refined
from goodspeed.fleet.replicas import MAX_OWED, MAX_PACES, Load, Owed, Pace
from goodspeed.slo.capacity import FLOOR
from verify_node.core.rounds import Rounds
from verify_node.slo.allotting import tpots
from verify_node.slo.deadline import Deadline

MOST_S = 1e6
"""Cap on reported times, in seconds, beyond any planning horizon."""


def load_of(rounds: Rounds, now: float, *, is_draining: bool) -> Load:
    """Sums up the open sessions and the promises.

    Reports the model of a round's time as a line through a few points around the current load.
    """
    register, pool, promises = rounds.register, rounds.pool, rounds.promises
    unfinished = [session for session in rounds.sessions.values() if not session.finished]
    context = sum(len(session.tokens) for session in unfinished)
    paces, owed = summary(promises.promised.values(), now)
    num_others = sum(len(session.tokens) for session in unfinished if session.session_id not in promises.promised)
    num_taken = max(pool.num_pages - pool.num_free, promises.num_pages + num_others // pool.page_size)
    return Load(
        told_at=now,
        boot_id=register.welcome.boot_id.hex(),
        target_fingerprint=register.welcome.target_fingerprint,
        is_draining=is_draining,
        num_sessions=len(unfinished),
        max_sessions=register.max_sessions,
        num_pages=pool.num_pages,
        free_pages=max(0, pool.num_pages - num_taken),
        promisable_pages=max(0, int((1.0 - FLOOR) * pool.num_pages) - promises.num_pages),
        context_tokens=context,
        round_s=rounds.round_s,
        max_round_tokens=rounds.limits.max_round_tokens,
        **_line(rounds.cost, len(unfinished), context, rounds.limits.budget),
        usual_error=rounds.cost.usual_error,
        promises=promises.is_on,
        paces=paces,
        owed=owed,
    )


def summary(promised: Collection[Deadline], now: float) -> tuple[tuple[Pace, ...], tuple[Owed, ...]]:
    """Returns the TPOTs of promised sessions in decode, and the promised prompts still to prefill, earliest due first.

    Counts as `decide` does: a prompt with at most one token to prefill is in decode, and a late session's TPOT includes
    catching up. Drops prompts beyond MAX_OWED, those due last. Beyond MAX_PACES TPOTs, slower ones count as the
    slowest reported one.
    """
    decoding = Counter(tpots((one for one in promised if one.prompt_left <= 1), now))
    told = sorted(decoding)
    for slower in told[MAX_PACES:]:
        decoding[told[MAX_PACES - 1]] += decoding[slower]
    waiting = sorted((one for one in promised if one.prompt_left > 1), key=lambda one: one.due)[:MAX_OWED]
    return tuple(Pace(tpot_s, decoding[tpot_s]) for tpot_s in told[:MAX_PACES]), tuple(_owed(waiting, now))


def _owed(waiting: Iterable[Deadline], now: float) -> Iterable[Owed]:
    for one in waiting:
        left_s = max(-MOST_S, min(one.due - now, MOST_S))
        yield Owed(left_s, one.prompt_left, one.slo.tpot_s, one.pages)


def _line(cost: Refined, num_sessions: int, context: int, budget: int) -> dict[str, float]:
    """Slopes of the round time around a round with one token per session, and the fixed remainder, in seconds."""
    number = max(1, num_sessions)
    round_s = cost.round_s(number, number, context)
    token_s = max(0.0, (cost.round_s(number + budget, number, context) - round_s) / budget)
    session_s = max(0.0, cost.round_s(number, number + 1, context) - round_s)
    context_s = max(0.0, (cost.round_s(number, number, context + 1024) - round_s) / 1024)
    fixed_s = max(0.0, round_s - token_s * number - session_s * number - context_s * context)
    return {"fixed_s": fixed_s, "token_s": token_s, "session_s": session_s, "context_s": context_s}
