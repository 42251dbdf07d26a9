"""Hardware that is emulated: nodes whose forward passes take as long as there, times a factor (time dilation).

    python -m experiments.benchmarks.nodes.emulating HARDWARE MODULE OPTIONS...

runs MODULE, `verify_node` or a draft worker's, with its options. A real pass goes on by sleeping until its emulated
time is over, also the few that try a model at its load; all else, such as sampling, messages and timers, takes its
real time. The measurement of a verify node at its start has that factor more time, so that it is as good as there. A
verify node takes its draft nodes, which are on loopback, for processes of other machines. A line is written for every
pass.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import msgspec
from torch import Tensor

from experiments.benchmarks.nodes import workers
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.fair.round_time import Roofline
from verify_node import cli, config
from verify_node.process import costs


class Hardware(msgspec.Struct, frozen=True):
    """A model on a device, and the factor that everything takes longer."""

    cost: Roofline
    factor: float
    log: str  # path of a file for the passes

    def pass_s(self, num_tokens: int, num_sessions: int, context_tokens: int) -> float:
        return self.factor * float(self.cost.round_s(num_tokens, num_sessions, context_tokens))


@dataclass(frozen=True)
class Emulation:
    """The hardware of a cluster's nodes, as their parent sees it."""

    target: Roofline
    drafts: Sequence[Roofline]  # of each draft node
    factor: float
    folder: Path  # for the nodes' logs

    def words(self, number: int | None) -> list[str]:
        """Returns the words before a node's module. number: a draft node's; None: the verify node's."""
        cost = self.target if number is None else self.drafts[number]
        log = self.folder / ("verify" if number is None else f"draft-{number}")
        hardware = msgspec.json.encode(Hardware(cost, self.factor, str(log)))
        return ["experiments.benchmarks.nodes.emulating", hardware.decode()]

    def late(self, since: float) -> dict[str, tuple[int, int]]:
        """Passes since a moment of `time.monotonic`, by kind of node: those that took longer than emulated, and all."""
        found = {}
        for kind in ("verify", "draft"):
            passes = [one for log in self.folder.glob(f"{kind}*") for one in _passes(log) if one[0] >= since]
            found[kind] = sum(real_s > emulated_s for _, real_s, emulated_s in passes), len(passes)
        return found


@contextmanager
def emulation(target: Roofline, drafts: Sequence[Roofline], factor: float) -> Iterator[Emulation]:
    with tempfile.TemporaryDirectory() as folder:
        yield Emulation(target, drafts, factor, Path(folder))


def _passes(log: Path) -> list[tuple[float, ...]]:
    """Start, real and emulated seconds of each pass; a line that is being written is left out."""
    lines = log.read_text("ascii").splitlines(keepends=True)
    return [tuple(map(float, line.split())) for line in lines if line.endswith("\n")]


# -- in the node's process ---------------------------------------------------------------------------------------------


def slowed(
    forward: Callable[[TorchEngine, Sequence[Chunk]], Tensor],
    hardware: Hardware,
    log: TextIO,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[TorchEngine, Sequence[Chunk]], Tensor]:
    """Returns a `TorchEngine.forward` that takes its emulated time, or its real one where that is longer."""

    def emulated(engine: TorchEngine, chunks: Sequence[Chunk]) -> Tensor:
        started = clock()
        context_tokens = sum(engine.pool.length(chunk.key) for chunk in chunks)  # before they are appended
        wanted_s = hardware.pass_s(sum(len(chunk.tokens) for chunk in chunks), len(chunks), context_tokens)
        logits = forward(engine, chunks)
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
        emulated: Any = slowed(TorchEngine.forward, hardware, log)
        TorchEngine.forward = emulated  # type: ignore[method-assign]
        return nodes[module]() or 0


if __name__ == "__main__":
    sys.exit(main())
