"""Worlds with one to 64 verify nodes: settings drawn from a seed."""

import random
from dataclasses import replace
from math import inf

from experiments.simulation.checking.worlds import MIN_WAYS, some_settings
from experiments.simulation.settings import Fleet, Knows, Lies, Settings, with_faults

SIZES = (1, 2, 2, 3, 3, 4, 5, 8, 13)
LARGE = 64


def some_fleet(seed: int) -> Settings:
    """Anything at all; now and then the fleet is large, up to LARGE."""
    rng = random.Random(f"fleet {seed}")
    settings = some_settings(seed)
    number = rng.choice(SIZES) if rng.random() < 0.97 else rng.randint(14, LARGE)
    settings = replace(
        settings,
        num_verifies=number,
        num_clients=rng.randint(1, min(10, 2 + 2 * number)),
        num_sessions=rng.choice([1, 5, 20, 60]),
        fleet=_some_fleet(rng),
        connect_timeout_s=max(settings.connect_timeout_s, 5.0),
    )
    return _with_enough_time(with_faults(settings, connections=True), rng)


def _some_fleet(rng: random.Random) -> Fleet:
    kinds: list[Knows] = ["all", "one", "twice", "nowhere"]
    lies: list[Lies] = ["none", "none", "none", "empty", "strange"]
    return Fleet(
        knows=tuple(rng.choice(kinds) for _ in range(5)),
        late=rng.choice([0.0, 0.0, 0.5]),
        part_every_s=rng.choice([0.0, 1.0, 5.0]),
        gone_every_s=rng.choice([0.0, 0.0, 5.0, 20.0]),
        roll_every_s=rng.choice([0.0, 0.0, 10.0]),
        table_lag_s=rng.choice([0.0, 0.0, 3.0, 12.0]),
        freeze_table_every_s=rng.choice([0.0, 0.0, 5.0]),
        lies=rng.choice(lies),
    )


def _with_enough_time(settings: Settings, rng: random.Random) -> Settings:
    """Nodes live long enough for a few ways there and back, now that a text may have to go to another, too."""
    faults, number = settings.faults, settings.num_verifies
    way_s = max(settings.latency_s) + faults.jitter_s
    least_s = 3 * MIN_WAYS * way_s + faults.down_s + 1.0
    every = {
        name: max(getattr(faults, name), least_s) / max(1.0, number / 4)
        for name in ("restart_every_s", "away_every_s", "stop_every_s")
        if getattr(faults, name)
    }
    settings = with_faults(settings, **every)
    fleet = settings.fleet
    rolls = fleet.roll_every_s and max(fleet.roll_every_s, number * (2 * faults.down_s + 1.0) + least_s)
    parts = fleet.part_every_s and max(fleet.part_every_s, 2 * least_s / number)
    settings = replace(settings, fleet=replace(fleet, roll_every_s=rolls, part_every_s=parts))
    return replace(settings, connect_timeout_s=inf) if rng.random() < 0.5 else settings
