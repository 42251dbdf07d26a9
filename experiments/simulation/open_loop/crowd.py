"""Times decisions about promises: 10 new requests at a time beside 200 that are promised and decode."""

from random import Random

import numpy as np

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.service import serve
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Independent
from goodspeed.fair.round_time import CostModel
from goodspeed.slo.objectives import Objectives

NUM_NEW, NUM_RUNNING = 10, 200
BEGIN_S, EVERY_S = 3.0, 0.1
TPOTS_S = (0.1, 0.2)
LONGEST_PROMPT = 40
SHORTEST_ROUND_S = 0.025


def scheduling_ms(cost: CostModel, crowds: int, seed: int) -> dict[str, float]:
    """CPU milliseconds for promises, at the median and the 99th percentile of rounds that decide on a crowd.

    200 requests go on to the end, beside so many crowds of 10, one after the other; memory suffices for all. cost: of a
    round, which takes 25 ms at least.
    """
    random = Random(seed)
    output = round((BEGIN_S + (crowds + 5) * EVERY_S) / SHORTEST_ROUND_S)
    running = [_request(0.0, BEGIN_S, output, random) for _ in range(NUM_RUNNING)]
    at_s = [BEGIN_S + EVERY_S * number for number in range(crowds) for _ in range(NUM_NEW)]
    settings = Settings(
        num_clients=8,
        admission="dp",
        max_draft=0,
        max_round_tokens=2048,
        round_cost=cost,
        known_cost=True,
        self_draft=False,
        latency_s=(0.0,),
    )
    done = serve(settings, [*running, *(_request(at, 1.0, 2, random) for at in at_s)], seed)
    deciding = [one for one in done.scheduling if one.num_new == NUM_NEW and one.num_promised >= NUM_RUNNING]
    p50, p99 = np.quantile([1000 * one.seconds for one in deciding], [0.5, 0.99])
    return {"p50": float(p50), "p99": float(p99), "crowds": len(deciding)}


def _request(at_s: float, ttft_s: float, output: int, random: Random) -> Arrival:
    slo = Objectives(random.uniform(0.5, 1.0) * ttft_s, random.choice(TPOTS_S))
    return Arrival(at_s, random.randint(1, LONGEST_PROMPT), output, Independent(0.5), slo)
