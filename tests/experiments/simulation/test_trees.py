"""A world in which draft nodes send token trees: alternatives are verified and accepted."""

from experiments.simulation.settings import Settings
from experiments.simulation.world import World
from goodspeed.fair.round_time import Linear

SENDING = Settings(
    num_clients=4,
    num_sessions=3,
    alpha=(0.6, 0.3),
    round_cost=Linear(fixed_s=0.01),
    known_cost=True,
    latency_s=(0.001,),
    draft_cost=(Linear(fixed_s=0.001),),
    self_draft=False,
    sizes=lambda client, number: (8, 100),
    stops=0.0,
)


def test_alternatives_are_verified_and_accepted() -> None:
    world = World(1, SENDING)
    world.run(20_000.0)
    core = world.verify.core
    assert core is not None
    counts = core.counts
    assert counts.num_alternatives > counts.num_alternatives_accepted > 10
    assert 0.1 < counts.num_alternatives_accepted / counts.num_alternatives < 0.5
