"""Worlds with anything at all, as many as are asked for, and whether everything that must hold holds in each.

    python -m experiments.simulation.faults --seeds 1000 [--fleet] [--first 0] [--json]

Messages are lost, repeated, delayed and reordered, draft nodes cut off, frozen and killed, the verify node killed at
any step, models fail, users go away, clocks are wrong, memory is tiny, lines are narrow (`checking/worlds.py`); then
every user's text is compared with what the target alone writes, and memory, refusals and waiting are looked at
(`checking/checks.py`). A seed in which something does not hold is printed with the command that plays it again, and the
others go on.

With --fleet a world has 1 to 64 verify nodes (`fleet/worlds.py`, `fleet/checks.py`). Beside the above they are killed,
drained, restarted one after the other, gone for good, cut off from some draft nodes, and back with another target; what
they are told of each other is old, or wrong, so that sessions are sent in circles; draft nodes know all of them, one,
one by two names, or nobody at first.
"""

import argparse
import json
import operator
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from experiments.simulation.checking.checks import Counts, Findings, Silence, look_back
from experiments.simulation.checking.worlds import some_settings
from experiments.simulation.fleet.checks import FleetSilence, look_back_at_fleet
from experiments.simulation.fleet.world import FleetWorld
from experiments.simulation.fleet.worlds import some_fleet
from experiments.simulation.settings import Settings
from experiments.simulation.world import Unfinished, World

LIMIT_S = 20_000.0
"""The limit of virtual time; the worst of worlds need some thousands."""

PROGRESS_S = 10.0
NUM_SHOWN = 5  # findings of one seed


@dataclass
class Report(Counts):
    """Sums over all worlds. Without a fleet nothing is redirected, moves or counts as a death."""

    num_worlds: int = 0
    num_rounds: int = 0
    num_verifies: int = 0
    num_redirects: int = 0
    num_moves: int = 0  # of texts that got tokens from one verify node, and then from another
    num_deaths: int = 0
    num_faults: int = 0
    num_cached: int = 0  # tokens that were in memory already, when their texts were let into a round
    failed: dict[str, int] = field(default_factory=dict)  # texts that ended so, with reason, by code
    failing_seeds: list[int] = field(default_factory=list)

    def add(self, seed: int, world: World, found: Findings) -> None:
        self.num_worlds += 1
        self.num_verifies += len(world.places)
        self.num_rounds += sum(place.verify.num_rounds for place in world.places)
        self.num_cached += sum(place.verify.num_cached for place in world.places)
        self.num_faults += world.num_faults_in_all
        if isinstance(world, FleetWorld):
            self.num_redirects += sum(draft.num_redirects for draft in world.fleet_drafts)
            self.num_moves += sum(draft.num_moves for draft in world.fleet_drafts)
            self.num_deaths += world.num_deaths
        for counted in fields(Counts):
            together = max if counted.name == "longest_silence" else operator.add
            setattr(self, counted.name, together(getattr(self, counted.name), getattr(found, counted.name)))
        codes = Counter(one.fail.code for draft in world.drafts for one in draft.done if one.fail is not None)
        self.failed = dict(Counter(self.failed) + codes)
        if found.what:
            self.failing_seeds.append(seed)


def play(seed: int, settings: Settings | None = None, limit_s: float = LIMIT_S) -> tuple[World, Findings]:
    """Plays one world from beginning to end."""
    world = World(seed, replace(settings or some_settings(seed), validate=True))
    silence = Silence(world)
    return world, _play_out(world, lambda: look_back(world, silence), limit_s)


def play_fleet(seed: int, settings: Settings | None = None, limit_s: float = LIMIT_S) -> tuple[FleetWorld, Findings]:
    """Plays one world with several verify nodes from beginning to end."""
    world = FleetWorld(seed, replace(settings or some_fleet(seed), validate=True))
    silence = FleetSilence(world)
    return world, _play_out(world, lambda: look_back_at_fleet(world, silence), limit_s)


def _play_out(world: World, look: Callable[[], Findings], limit_s: float) -> Findings:
    """Runs a world to its end. What the nodes raise is a finding, and the other worlds go on."""
    try:
        world.run(limit_s)
        return look()
    except Exception as error:
        found = look() if isinstance(error, Unfinished) else Findings()
        found.num_broken += 1
        found.what.append(f"{type(error).__name__}: {error}")
        return found


def run(first: int, number: int, *, fleet: bool = False) -> Report:
    """Plays worlds first, first + 1, ...; tells of those that fail, and how far it is, on standard error."""
    report, told_at = Report(), time.monotonic()
    for seed in range(first, first + number):
        world, found = play_fleet(seed) if fleet else play(seed)
        report.add(seed, world, found)
        if found.what:
            command = f"python -m experiments.simulation.faults{' --fleet' * fleet} --first {seed} --seeds 1"
            print("\n  ".join([f"seed {seed} fails; again: {command}", *found.what[:NUM_SHOWN]]), file=sys.stderr)
        if time.monotonic() - told_at > PROGRESS_S:
            told_at = time.monotonic()
            print(f"{report.num_worlds} of {number} worlds, {report.num_rounds:,} rounds", file=sys.stderr)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.simulation.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="number of worlds (default: %(default)s)")
    parser.add_argument("--fleet", action="store_true", help="worlds with 1 to 64 verify nodes")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of standard output")
    chosen = parser.parse_args(arguments)
    if chosen.seeds < 1:
        parser.error(f"--seeds {chosen.seeds}: at least one world is needed")
    started = time.process_time()
    report = run(chosen.first, chosen.seeds, fleet=chosen.fleet)
    seconds = time.process_time() - started
    print(f"{report.num_rounds / seconds:,.0f} rounds a second of CPU time", file=sys.stderr)
    told = asdict(report)
    print(json.dumps(told) if chosen.json else "\n".join(f"{name:16} {value}" for name, value in told.items()))
    return 1 if report.failing_seeds else 0


if __name__ == "__main__":
    raise SystemExit(main())
