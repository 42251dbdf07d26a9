"""A node whose forward passes take as long as on other hardware, times a factor: time dilation.

    python -m experiments.benchmarks.nodes.emulating HARDWARE MODULE OPTIONS...

runs MODULE, `verify_node` or a draft worker's, with its options. A real pass goes on by sleeping until its emulated
time is over; all else, such as sampling, messages and timers, takes its real time. The measurement of a verify node at
its start has that factor more time, so that it is as good as there. A verify node takes its draft nodes, which are on
loopback, for processes of other machines. A line is written for every pass.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec
from torch import Tensor

from experiments.benchmarks.nodes import workers
from experiments.benchmarks.nodes.hardware import Hardware
from goodspeed.engine.runner import Chunk, Runner
from verify_node import cli, config
from verify_node.process import costs


def slowed(
    forward: Callable[[Runner, Sequence[Chunk]], Tensor],
    hardware: Hardware,
    log: TextIO,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[Runner, Sequence[Chunk]], Tensor]:
    """Returns a `Runner.forward` that takes its emulated time, or its real one where that is longer."""

    def emulated(runner: Runner, chunks: Sequence[Chunk]) -> Tensor:
        started = clock()
        context_tokens = sum(runner.pool.length(chunk.key) for chunk in chunks)  # before they are appended
        wanted_s = hardware.pass_s(sum(len(chunk.tokens) for chunk in chunks), len(chunks), context_tokens)
        logits = forward(runner, chunks)
        real_s = clock() - started
        log.write(f"{started} {real_s} {wanted_s}\n")
        sleep(max(0.0, wanted_s - real_s))
        return logits

    return emulated


def main() -> int:
    hardware = msgspec.json.decode(sys.argv[1], type=Hardware)
    module = sys.argv[2]
    nodes = {"verify_node": cli.main, "experiments.benchmarks.nodes.workers": workers.work}
    costs.QUICK_S *= hardware.factor
    vars(config)["is_loopback"] = lambda endpoint: False  # draft nodes are elsewhere
    del sys.argv[1:3]
    with Path(hardware.log).open("a", buffering=1, encoding="ascii") as log:
        emulated: Any = slowed(Runner.forward, hardware, log)
        Runner.forward = emulated  # type: ignore[method-assign]
        return nodes[module]() or 0


if __name__ == "__main__":
    sys.exit(main())
