"""The result of a soak: promises that held and slopes, as JSON and as a table. No I/O."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tests.faults.soak.resources import Life, Series
from tests.faults.soak.run import Outcome
from tests.faults.soak.slopes import Slope, slope

WARM_UP_S = 120.0
"""The warm-up of each life: the first texts of every kind make libraries allocate what they keep."""

JUDGED_S = 600.0
"""A life that is shorter after that is told, and not judged: a line through minutes says nothing of an hour."""

FLAT_PER_HOUR = {"rss_mb": 5.0, "fds": 2.0, "threads": 1.0}
"""A node of 400 MB that grows by 5 MB an hour doubles in three days; files, sockets and threads are whole things, and
one that is lost with each connection, text or fault would make hundreds of them in an hour."""

OF_VERIFY = {"pages (share)": 0.01, "sessions running": 1.0, "sessions waiting": 1.0, "peers": 1.0, "clients": 1.0,
             "entries of clients": 1.0}  # fmt: skip
"""Over the whole run. That all sessions and pages are given back in the end is looked at besides."""

UNITS = {"rss_mb": "MB/h", "anonymous_mb": "MB/h"}


@dataclass(frozen=True)
class Row:
    """A figure over a life of a process, or over the run."""

    whose: str
    figure: str
    slope: Slope
    is_flat: bool | None  # None: not judged


@dataclass(frozen=True)
class Promise:
    what: str
    is_kept: bool
    said: str


def rows(outcome: Outcome) -> list[Row]:
    """The rows of each life's figures that are long enough to have a slope, then those of the verify node's metrics."""
    found = []
    for (life, figure), series in outcome.records.of_processes.items():
        found += list(_row(_name(life), figure, series, FLAT_PER_HOUR.get(figure)))
    for figure, series in outcome.records.of_verify.items():
        found += list(_row("verify", figure, series, OF_VERIFY.get(figure)))
    return found


def _row(whose: str, figure: str, series: Series, per_hour: float | None) -> Iterator[Row]:
    warm = series.after(series.times_s[0] + WARM_UP_S) if series.times_s else series
    if len(warm) < 3:
        return
    told = slope(warm.times_s, warm.values)
    is_judged = per_hour is not None and told.span_s >= JUDGED_S
    yield Row(whose, figure, told, told.is_flat(per_hour) if is_judged and per_hour is not None else None)


def _name(life: Life) -> str:
    return f"{life.name} (life {life.generation + 1})"


def promises(outcome: Outcome, told: list[Row]) -> list[Promise]:
    """The promises; a soak without texts proves nothing and keeps nothing."""
    tally = outcome.tally
    growing = [f"{row.whose} {row.figure} {row.slope.least_squares:+.2f}/h" for row in told if row.is_flat is False]
    silent = [role.name for role in outcome.plan.cast if not outcome.tokens_by_node[role.name]]
    unclean = {name: status for name, status in outcome.statuses.items() if status != 0}
    judged = sum(row.is_flat is not None for row in told)
    return [
        Promise(
            "every text exact, complete, in time, or excused",
            not tally.num_broken,
            f"{tally.num_broken} broken of {sum(tally.verdicts.values())}",
        ),
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
                "; ".join(growing) or (f"{judged} slopes" if judged else "the run is too short to tell")),
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
    return Counter(
        f"{one.kind} of the verify node" if one.whom == "verify" else one.kind for one in outcome.weather.episodes
    )


def to_text(outcome: Outcome) -> str:
    """Writes the report for a terminal."""
    told = rows(outcome)
    lines = [f"{'kept' if one.is_kept else 'BROKEN':<7} {one.what}: {one.said}" for one in promises(outcome, told)]
    lines += ["", "texts   " + ", ".join(f"{num} {name}" for name, num in sorted(outcome.tally.verdicts.items()))]
    lines += [
        f"tokens  {outcome.tally.num_tokens}, {outcome.tally.num_compared} compared, "
        f"{outcome.tally.num_near_ties} near-ties",
        "faults  " + ", ".join(f"{num} {name}" for name, num in faults(outcome).most_common()),
        f"not let in while something was wrong: {dict(outcome.refusals)}; otherwise: {dict(outcome.odd_refusals)}",
        "",
    ]
    for row in told:
        one, word = row.slope, {True: "flat", False: "GROWS", None: ""}[row.is_flat]
        growth = f"{one.least_squares:+10.2f} +- {one.error:<8.2f} {UNITS.get(row.figure, '/h'):<5}"
        between = f"{one.first:8.1f} -> {one.last:8.1f} in {one.span_s / 60:4.1f} min"
        lines.append(f"{row.whose:<18} {row.figure:<18} {growth} {between}  {word}".rstrip())
    return "\n".join(lines)
