"""Worlds with 1 to 64 verify nodes, in which anything goes wrong, and whether everything that must hold holds in each.

    python -m experiments.simulation.fleet_faults --rounds 200000 [--first 0] [--json]

Beside what `faults.py` does to nodes and lines: verify nodes are killed, drained, restarted one after the other, gone
for good, cut off from some draft nodes, and back with another target; what they are told of each other is old, or
wrong, so that sessions are sent in circles; draft nodes know all of them, one, one by two names, or nobody at first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from experiments.simulation.checking.checks import Findings
from experiments.simulation.checking.playing import LIMIT_S, PROGRESS_S, play_out, tell, tell_failure
from experiments.simulation.fleet.checks import FleetSilence, look_back_at_fleet
from experiments.simulation.fleet.world import FleetWorld
from experiments.simulation.fleet.worlds import some_fleet
from experiments.simulation.settings import Settings

COMMAND = "python -m experiments.simulation.fleet_faults --first {seed} --rounds 1"


@dataclass
class Report:
    """Sums over all worlds."""

    num_worlds: int = 0
    num_rounds: int = 0
    num_verifies: int = 0
    num_sessions: int = 0
    num_redirects: int = 0
    num_moves: int = 0  # of texts that got tokens from one verify node, and then from another
    num_deaths: int = 0
    num_faults: int = 0
    num_wrong: int = 0
    num_lost: int = 0
    num_duplicated: int = 0
    pages_left: int = 0
    num_broken: int = 0
    num_findings: int = 0
    longest_silence: float = 0.0
    failed: dict[str, int] = field(default_factory=dict)  # texts that ended so, with reason, by code
    failing_seeds: list[int] = field(default_factory=list)

    def add(self, seed: int, world: FleetWorld, found: Findings) -> None:
        self.num_worlds += 1
        self.num_rounds += world.num_rounds
        self.num_verifies += world.settings.num_verifies
        self.num_redirects += sum(draft.num_redirects for draft in world.fleet_drafts)
        self.num_moves += sum(draft.num_moves for draft in world.fleet_drafts)
        self.num_deaths += world.num_deaths
        self.num_faults += world.num_faults_in_all
        self.num_findings += len(found.what)
        for name in ("num_sessions", "num_wrong", "num_lost", "num_duplicated", "pages_left", "num_broken"):
            setattr(self, name, getattr(self, name) + getattr(found, name))
        self.longest_silence = max(self.longest_silence, found.longest_silence)
        codes = Counter(one.fail.code for draft in world.drafts for one in draft.done if one.fail is not None)
        self.failed = dict(Counter(self.failed) + codes)
        if found.what:
            self.failing_seeds.append(seed)


def play(seed: int, settings: Settings | None = None, limit_s: float = LIMIT_S) -> tuple[FleetWorld, Findings]:
    """Plays one world from beginning to end."""
    world = FleetWorld(seed, replace(settings or some_fleet(seed), validate=True))
    silence = FleetSilence(world)
    return world, play_out(world, lambda: look_back_at_fleet(world, silence), limit_s)


def run(first: int, num_rounds: int) -> Report:
    """Plays worlds first, first + 1, ... until they have had so many rounds; tells of those that fail."""
    report, told_at, seed = Report(), time.monotonic(), first
    while report.num_rounds < num_rounds:
        world, found = play(seed)
        report.add(seed, world, found)
        if found.what:
            tell_failure(COMMAND, seed, found)
        if time.monotonic() - told_at > PROGRESS_S:
            told_at = time.monotonic()
            print(f"{report.num_worlds} worlds, {report.num_rounds:,} of {num_rounds:,} rounds", file=sys.stderr)
        seed += 1
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.simulation.fleet_faults", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=20_000, metavar="N", help="in all (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of standard output")
    chosen = parser.parse_args(arguments)
    if chosen.rounds < 1:
        parser.error(f"--rounds {chosen.rounds}: at least one round is needed")
    report = run(chosen.first, chosen.rounds)
    return tell(report, report.failing_seeds, as_json=chosen.json)


if __name__ == "__main__":
    raise SystemExit(main())
