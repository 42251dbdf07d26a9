"""Hardware that is emulated: what a forward pass costs there, which node has which, and the passes that took longer."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from goodspeed.fair.round_time import Linear, Roofline


class Hardware(msgspec.Struct, frozen=True):
    """A model on a device, and the factor that everything takes longer."""

    terms: tuple[tuple[float, float, float, float], ...]  # coefficients of a Roofline
    factor: float
    log: str  # path of a file for the passes

    def pass_s(self, num_tokens: int, num_sessions: int, context_tokens: int) -> float:
        cost = Roofline(tuple(Linear(*term) for term in self.terms))
        return self.factor * float(cost.round_s(num_tokens, num_sessions, context_tokens))


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
        terms = tuple(term.coefficients for term in cost.terms)
        hardware = msgspec.json.encode(Hardware(terms, self.factor, str(log)))
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
