"""Times the gradient scheduler at three sizes, and checks that it is exact.

Measured is Eq. (5), as the verify node calls it (the list form) and as arrays. The clients are drawn from a seed:
acceptance from 0.3 to 0.95, goodput from 1 to 6 tokens a round, weights 1 or 2, drafts of 32 tokens at most.

Figures are medians of the thread's own CPU time, so that waiting for a core does not count. Exact is checked without
the code under test: with a heap over the marginal gains where that is quick enough, and always by the certificate that
no gain left out is larger than one taken.

It takes about 15 s on two cores; about 5 s with --quick.
"""

import heapq
import math
import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.harness import benchmark
from goodspeed.fair.policies import ClientState, create
from goodspeed.fair.policies.gradient import allocate_arrays

MAX_LENGTH = 32
INPUT = "acceptance 0.3 to 0.95, goodput 1 to 6, weights 1 or 2, drafts up to 32 tokens"
LIST_LIMIT, HEAP_LIMIT = 10_000, 100_000  # clients beyond which a check or a form is left out


@dataclass(frozen=True)
class Size:
    num_clients: int
    budget: int
    limit_s: float
    repetitions: int


SIZES = [Size(8, 28, 100e-6, 2000), Size(1_000, 4_000, 1e-3, 300), Size(1_000_000, 4_000_000, 1.0, 7)]
QUICK = [Size(8, 28, 100e-6, 300), Size(1_000, 4_000, 1e-3, 50), Size(1_000_000, 4_000_000, 1.0, 2)]


@dataclass(frozen=True)
class Clients:
    acceptance: NDArray[np.float64]
    goodput: NDArray[np.float64]
    weight: NDArray[np.float64]
    caps: NDArray[np.int64]

    def states(self) -> list[ClientState]:
        columns = (self.acceptance, self.goodput, self.weight, self.caps)
        return [ClientState(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def gains(self, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the logarithm of the marginal gain of each client's token number `lengths`."""
        return np.log(self.weight) - np.log(self.goodput) + lengths * np.log(self.acceptance)


def draw(num_clients: int, seed: int = 0) -> Clients:
    random = np.random.default_rng(seed)
    return Clients(
        random.uniform(0.3, 0.95, num_clients),
        random.uniform(1.0, 6.0, num_clients),
        random.choice([1.0, 2.0], num_clients),
        np.full(num_clients, MAX_LENGTH),
    )


def measure(size: Size) -> dict[str, Any]:
    clients = draw(size.num_clients)
    columns = (clients.acceptance, clients.goodput, clients.weight, clients.caps)
    array_s = benchmark.median_s(lambda: allocate_arrays(*columns, size.budget), size.repetitions, warm_up=1)
    lengths = allocate_arrays(*columns, size.budget)
    result: dict[str, Any] = asdict(size) | {"array_median_s": array_s}
    exact = is_certified(clients, lengths, size.budget)
    if size.num_clients <= LIST_LIMIT:
        policy, states = create("gradient"), clients.states()
        result["list_median_s"] = benchmark.median_s(
            lambda: policy.allocate(states, size.budget), size.repetitions, warm_up=1
        )
        exact &= create("gradient").allocate(states, size.budget) == lengths.tolist()
    if size.num_clients <= HEAP_LIMIT:
        exact &= by_heap(clients, size.budget) == lengths.tolist()
    return result | {"exact": bool(exact), "within_limit": result.get("list_median_s", array_s) <= size.limit_s}


def is_certified(clients: Clients, lengths: NDArray[np.int64], budget: int) -> bool:
    """True if lengths are optimal: gains fall along each client, so the last taken and first left tokens decide."""
    taken, left = lengths > 0, lengths < clients.caps
    worst_taken = clients.gains(lengths)[taken].min(initial=math.inf)
    best_left = clients.gains(lengths + 1)[left].max(initial=-math.inf)
    return bool(lengths.sum() == min(budget, clients.caps.sum()) and worst_taken >= best_left)


def by_heap(clients: Clients, budget: int) -> list[int]:
    """Allocates with the textbook greedy: always the client whose next token gains most."""
    level = (np.log(clients.weight) - np.log(clients.goodput)).tolist()
    slope, caps = np.log(clients.acceptance).tolist(), clients.caps.tolist()
    lengths = [0] * len(level)
    heap = [(-(a + b), i) for i, (a, b) in enumerate(zip(level, slope, strict=True)) if caps[i]]
    heapq.heapify(heap)
    for _ in range(budget):
        if not heap:
            break
        _, i = heap[0]
        lengths[i] += 1
        if lengths[i] < caps[i]:
            heapq.heapreplace(heap, (-(level[i] + (lengths[i] + 1) * slope[i]), i))
        else:
            heapq.heappop(heap)
    return lengths


def table(results: list[dict[str, Any]]) -> str:
    rows = {"list_median_s": "Eq. (5), as the verify node calls it", "array_median_s": "Eq. (5), arrays"}
    lines = [f"{INPUT} (times in us)"]
    for result in results:
        exact = "exact" if result["exact"] else "NOT EXACT"
        limit_us = result["limit_s"] * 1e6
        lines.append(f"{result['num_clients']:,} clients, budget {result['budget']:,}: {exact}; limit {limit_us:,.0f}")
        for key, text in rows.items():
            if key in result:
                lines.append(f"{result[key] * 1e6:>14,.0f}  {text}")
    return "\n".join(lines)


def main() -> int:
    options = benchmark.parser("scheduler", __doc__, "fewer repetitions").parse_args()
    results = [measure(size) for size in (QUICK if options.quick else SIZES)]
    benchmark.say(options, table(results))
    benchmark.report(options, {"benchmark": "scheduler", "input": INPUT, "sizes": results})
    return 0 if all(result["exact"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
