"""Worlds with anything at all, as many as are asked for, and whether everything that must hold holds in each.

    python -m experiments.simulation.faults --seeds 1000 [--first 0] [--json]

Messages are lost, repeated, delayed and reordered, draft nodes cut off, frozen and killed, the verify node killed at
any step, models fail, users go away, clocks are wrong, memory is tiny, lines are narrow (`worlds.py`); then every
user's text is compared with what the target alone writes, and memory, refusals and waiting are looked at (`checks.py`).
A seed in which something does not hold is printed with the command that plays it again, and the others go on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from experiments.simulation.checking.checks import Findings, Silence, look_back
from experiments.simulation.checking.playing import LIMIT_S, PROGRESS_S, play_out, tell, tell_failure
from experiments.simulation.checking.worlds import some_settings
from experiments.simulation.settings import Settings
from experiments.simulation.world import World

COMMAND = "python -m experiments.simulation.faults --first {seed} --seeds 1"


@dataclass
class Report:
    """Sums over all worlds."""

    num_worlds: int = 0
    num_rounds: int = 0
    num_sessions: int = 0
    num_faults: int = 0
    num_wrong: int = 0
    num_lost: int = 0
    num_duplicated: int = 0
    pages_left: int = 0
    num_silent: int = 0
    num_unearned: int = 0
    num_broken: int = 0
    num_cached: int = 0  # tokens that were in memory already, when their texts were let into a round
    longest_silence: float = 0.0
    failing_seeds: list[int] = field(default_factory=list)

    def add(self, seed: int, world: World, found: Findings) -> None:
        self.num_worlds += 1
        self.num_rounds += world.verify.num_rounds
        self.num_faults += world.num_faults_in_all
        self.num_cached += world.verify.num_cached
        for counted in fields(Findings):
            if counted.type is int or counted.type == "int":
                setattr(self, counted.name, getattr(self, counted.name) + getattr(found, counted.name))
        self.longest_silence = max(self.longest_silence, found.longest_silence)
        if found.what:
            self.failing_seeds.append(seed)


def play(seed: int, settings: Settings | None = None, limit_s: float = LIMIT_S) -> tuple[World, Findings]:
    """Plays one world from beginning to end."""
    world = World(seed, replace(settings or some_settings(seed), validate=True))
    silence = Silence(world)
    return world, play_out(world, lambda: look_back(world, silence), limit_s)


def run(first: int, number: int) -> Report:
    """Plays worlds first, first + 1, ...; tells of those that fail, and how far it is, on standard error."""
    report, told_at = Report(), time.monotonic()
    for seed in range(first, first + number):
        world, found = play(seed)
        report.add(seed, world, found)
        if found.what:
            tell_failure(COMMAND, seed, found)
        if time.monotonic() - told_at > PROGRESS_S:
            told_at = time.monotonic()
            print(f"{report.num_worlds} of {number} worlds, {report.num_rounds:,} rounds", file=sys.stderr)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.simulation.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="number of worlds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of standard output")
    chosen = parser.parse_args(arguments)
    if chosen.seeds < 1:
        parser.error(f"--seeds {chosen.seeds}: at least one world is needed")
    started = time.process_time()
    report = run(chosen.first, chosen.seeds)
    seconds = time.process_time() - started
    print(f"{report.num_rounds / seconds:,.0f} rounds a second of CPU time", file=sys.stderr)
    return tell(report, report.failing_seeds, as_json=chosen.json)


if __name__ == "__main__":
    raise SystemExit(main())
