"""A draft worker whose draft model is slower than it is here: each of its steps takes so many times its time.

    python -m experiments.served.slower FACTOR MODULE OPTIONS...

runs MODULE, a draft worker's, with its options. What is not the model's, such as n-grams and messages, takes its own
time.
"""

import sys
import time

from experiments.benchmarks.nodes import workers
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Proposed


def main() -> None:
    factor, step = float(sys.argv[1]), Drafter.step

    def slow(drafter: Drafter, room: float | None = None) -> list[Proposed]:
        began = time.monotonic()
        proposed = step(drafter, room)
        time.sleep((factor - 1.0) * (time.monotonic() - began))
        return proposed

    Drafter.step = slow  # type: ignore[assignment, method-assign]
    del sys.argv[1:3]
    workers.work()


if __name__ == "__main__":
    main()
