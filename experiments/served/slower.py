"""A draft worker whose draft model is slower than it is here: each of its steps takes so many times its time.

    python -m experiments.served.slower FACTOR MODULE OPTIONS...

runs MODULE, a draft worker's, with its options. What is not the model's, such as n-grams and messages, takes its own
time.
"""

import sys
import time
from collections.abc import Callable

from experiments.benchmarks.nodes import workers
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Proposed


def slowed(
    step: Callable[[Drafter, float | None], list[Proposed]],
    factor: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[Drafter, float | None], list[Proposed]]:
    """Returns a `Drafter.step` that goes on by sleeping until `factor` times its time is over."""

    def slow(drafter: Drafter, room: float | None = None) -> list[Proposed]:
        began = clock()
        proposed = step(drafter, room)
        sleep((factor - 1.0) * (clock() - began))
        return proposed

    return slow


def main() -> None:
    Drafter.step = slowed(Drafter.step, float(sys.argv[1]))  # type: ignore[assignment, method-assign]
    del sys.argv[1:3]
    workers.work()


if __name__ == "__main__":
    main()
