"""Plays random worlds to their end, and tells of those in which something does not hold."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from experiments.simulation.checking.checks import Findings
from experiments.simulation.world import Unfinished, World

LIMIT_S = 20_000.0
"""The limit of virtual time; the worst of worlds need some thousands."""

PROGRESS_S = 10.0
NUM_SHOWN = 5  # findings of one seed


def play_out(world: World, look_back: Callable[[], Findings], limit_s: float) -> Findings:
    """Runs a world to its end. What the nodes raise is a finding, and the other worlds go on."""
    try:
        world.run(limit_s)
        return look_back()
    except Exception as error:
        found = look_back() if isinstance(error, Unfinished) else Findings()
        found.num_broken += 1
        found.what.append(f"{type(error).__name__}: {error}")
        return found


def tell_failure(command: str, seed: int, found: Findings) -> None:
    """Prints the command that plays a world again, and what was found in it."""
    print(f"seed {seed} fails; again: {command.format(seed=seed)}", file=sys.stderr)
    for what in found.what[:NUM_SHOWN]:
        print(f"  {what}", file=sys.stderr)


def tell(report: Any, failing_seeds: list[int], *, as_json: bool) -> int:
    """Prints a report, a dataclass; returns the exit status."""
    if as_json:
        print(json.dumps(asdict(report)))
    else:
        for name, value in asdict(report).items():
            print(f"{name:16} {value}")
    return 1 if failing_seeds else 0
