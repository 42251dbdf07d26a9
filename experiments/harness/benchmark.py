"""The frame of every benchmark: its options --quick and --json, its table, and one JSON object as its last line."""

import argparse
import json
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from goodspeed.serving.parser import CommandLine


def parser(name: str, about: str | None, quick: str) -> CommandLine:
    """The command line of `python -m experiments.benchmarks.NAME`. quick: what --quick makes smaller.

    From now on SIGTERM ends this process as sys.exit does, so that the nodes that it started end with it.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    found = CommandLine(prog=f"python -m experiments.benchmarks.{name}", description=about)
    found.add_argument("--quick", action="store_true", help=quick)
    found.add_argument("--json", action="store_true", help="one JSON object as the last line")
    return found


def say(options: argparse.Namespace, *words: object) -> None:
    """Prints a line of the table: to standard error where standard output is for JSON."""
    print(*words, file=sys.stderr if options.json else sys.stdout, flush=True)


def note(what: str) -> None:
    """Tells on standard error how far the benchmark is, with the time."""
    print(time.strftime("%H:%M:%S"), what, file=sys.stderr, flush=True)


def report(options: argparse.Namespace, found: Mapping[str, Any]) -> None:
    """Prints the last line if --json asks for it."""
    if options.json:
        print(json.dumps(found))


def in_turn(ways: Iterable[str], repetition: int) -> list[str]:
    """Returns the ways, in each repetition beginning with another one."""
    names = list(ways)
    first = repetition % max(1, len(names))
    return names[first:] + names[:first]


def median_ratio(times: Sequence[float], baseline: Sequence[float]) -> float:
    """Returns the median of the ratios within a repetition, whatever else the machine did between repetitions."""
    return statistics.median(one / other for one, other in zip(times, baseline, strict=True))
