"""The result of a soak as JSON: promises that held, and slopes. No I/O."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tests.faults.soak.run import Outcome
from tests.faults.soak.slopes import Slope, slope

WARM_UP_S = 120.0  # the warm-up of each life: the first texts of every kind make libraries allocate what they keep
JUDGED_S = 600.0  # a life that is shorter after that is not judged: a line through minutes says nothing of an hour
FLAT_PER_HOUR = {"rss_mb": 5.0, "fds": 2.0, "threads": 1.0}
"""A node of 400 MB that grows by 5 MB an hour doubles in three days; files, sockets and threads are whole things, and
one that is lost with each connection, text or fault would make hundreds of them in an hour."""

OF_VERIFY = {"pages (share)": 0.01, "sessions running": 1.0, "sessions waiting": 1.0, "peers": 1.0, "clients": 1.0,
             "entries of clients": 1.0}  # fmt: skip
"""Over the whole run. That all sessions and pages are given back in the end is looked at besides."""


@dataclass(frozen=True)
class Row:
    """A figure over a life of a process, or over the run."""

    whose: str
    figure: str
    slope: Slope
    is_flat: bool


@dataclass(frozen=True)
class Promise:
    what: str
    is_kept: bool
    said: str


def rows(outcome: Outcome) -> list[Row]:
    """The rows of each long life's figures, then those of the verify node's metrics."""
    of_lives = [
        (f"{life.name} (life {life.generation + 1})", figure, series, FLAT_PER_HOUR)
        for (life, figure), series in outcome.records.of_processes.items()
    ]
    of_verify = [("verify", figure, series, OF_VERIFY) for figure, series in outcome.records.of_verify.items()]
    found = []
    for whose, figure, series, flat in (*of_lives, *of_verify):
        warm = series.after(series.times_s[0] + WARM_UP_S)
        if warm.times_s and warm.times_s[-1] - warm.times_s[0] >= JUDGED_S:
            told = slope(warm.times_s, warm.values)
            found.append(Row(whose, figure, told, told.is_flat(flat[figure])))
    return found


def promises(outcome: Outcome, told: list[Row]) -> list[Promise]:
    """The promises; a soak without texts proves nothing and keeps nothing."""
    tally = outcome.tally
    growing = [f"{row.whose} {row.figure} {row.slope.per_hour:+.2f}/h" for row in told if not row.is_flat]
    silent = [role.name for role in outcome.plan.cast if not outcome.tokens_by_node[role.name]]
    unclean = {name: status for name, status in outcome.statuses.items() if status != 0}
    return [
        Promise("every text exact, complete, in time, or excused", not tally.num_broken,
                f"{tally.num_broken} broken of {sum(tally.verdicts.values())}"),
        Promise("every text is let in where nothing is wrong", not outcome.odd_refusals,
                str(dict(outcome.odd_refusals) or "all")),
        Promise("every draft node writes texts", not silent, ", ".join(silent) or f"{tally.num_tokens} tokens in all"),
        Promise("no process ends by itself", not outcome.ended_by_themselves,
                "; ".join(outcome.ended_by_themselves) or "none"),
        Promise("every fault is done, every text judged", not outcome.own_failures,
                "; ".join(outcome.own_failures[:5]) or "all"),
        Promise("no traceback in a log", not outcome.tracebacks, "; ".join(outcome.tracebacks[:5]) or "none"),
        Promise("sessions and pages are given back", not outcome.left_over, str(outcome.left_over or "all")),
        Promise("memory, files, sockets, threads, sessions are flat", not growing,
                "; ".join(growing) or (f"{len(told)} slopes" if told else "the run is too short to tell")),
        Promise("every node ends in good order", not unclean, str(unclean or "status 0")),
    ]  # fmt: skip


def to_json(outcome: Outcome) -> dict[str, Any]:
    told = rows(outcome)
    kept = promises(outcome, told)
    return {
        "kept": all(one.is_kept for one in kept),
        "promises": [asdict(one) for one in kept],
        "plan": asdict(outcome.plan),
        "took_s": round(outcome.took_s, 1),
        "texts": dict(outcome.tally.verdicts),
        "num_tokens": outcome.tally.num_tokens,
        "num_tokens_compared": outcome.tally.num_compared,
        "num_near_ties": outcome.tally.num_near_ties,
        "tokens_by_node": dict(outcome.tokens_by_node),
        "broken": outcome.tally.broken,
        "faults": dict(faults(outcome)),
        "not_let_in_while_faulty": dict(outcome.refusals),
        "not_let_in_otherwise": dict(outcome.odd_refusals),
        "refused_messages": outcome.verify_refusals,
        "slopes": [{"whose": row.whose, "figure": row.figure, "is_flat": row.is_flat, **asdict(row.slope)}
                   for row in told],
    }  # fmt: skip


def faults(outcome: Outcome) -> Counter[str]:
    """The number of faults of each kind."""
    suffix = {"verify": " of the verify node"}
    return Counter(one.kind + suffix.get(one.whom, "") for one in outcome.weather.episodes)
