"""Chooses lengths of drafts where one device drafts for all and then verifies (`together.py`)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from experiments.simulation.open_loop.together import Batch, Text
from goodspeed.fair.selection import Candidate, Cost, rank, take, take_needed
from verify_node.slo.needs import CROWDING

KEPT = 0.6
"""The weight of earlier rounds in the mean confidence that Alg. 1 predicts by, as in AdaSpec's public code."""


@dataclass(frozen=True)
class Fixed:
    """So many tokens for everybody; 0 is plain decoding."""

    length: int

    def draft(self, batch: Batch) -> None:
        for _ in range(self.length):
            batch.step(batch.texts)


@dataclass(frozen=True)
class Threshold:
    """A draft ends with the first token whose confidence is below `bound`, or after `most`."""

    bound: float
    most: int = 8

    def draft(self, batch: Batch) -> None:
        going = batch.texts
        for _ in range(self.most):
            batch.step(going)
            going = [text for text in going if text.confidences[-1] >= self.bound]
            if not going:
                return


@dataclass
class Adaptive:
    """AdaSpec: steps while the next one is expected to pay (Alg. 1), and then the least likely tokens go (Alg. 2)."""

    eliminates: bool = True
    most_s: float = inf  # the TPOT that no round may exceed (Alg. 3)
    confidence: float = 1.0  # mean of what was drafted

    def draft(self, batch: Batch) -> None:
        self._deepen(batch)
        confidences = [one for text in batch.texts for one in text.confidences]
        if confidences:
            self.confidence = KEPT * self.confidence + (1.0 - KEPT) * sum(confidences) / len(confidences)
        if self.eliminates:
            self._eliminate(batch)

    def _deepen(self, batch: Batch) -> None:
        best = -1.0
        while True:
            more = self.confidence * sum(text.paths[-1] if text.paths else 1.0 for text in batch.texts)
            seconds = batch.seconds(len(batch.texts), batch.step_s(batch.texts))
            if batch.efficiency(_expected(batch.texts) + more, seconds, self.most_s) <= best:
                return
            batch.step(batch.texts)
            best = batch.efficiency(_expected(batch.texts), batch.seconds(), self.most_s)

    def _eliminate(self, batch: Batch) -> None:
        expected = _expected(batch.texts)
        best = batch.efficiency(expected, batch.seconds(), self.most_s)
        drafted = [(path, text) for text in batch.texts for path in text.paths]
        for path, text in sorted(drafted, key=lambda pair: (pair[0], -pair[1].number)):
            found = batch.efficiency(expected - path, batch.seconds(-1), self.most_s)
            if found <= best:
                return
            best, expected = found, expected - path
            text.paths.pop()


@dataclass(frozen=True)
class Trees:
    """AdaServe: beams by load (Eqs. 8, 9), of which first come what texts owe, and then the likeliest nodes (Alg. 2).

    What a text owes is Eqs. (2) and (3), and is taken also where it does not suffice, as the paper has it.
    """

    budget: int  # B_1, of tokens that the target verifies in a round, one of each text among them
    step_budget: int  # B_2, of tokens in a step of the draft model
    depths: tuple[int, int]  # least and most
    most_width: int
    c1: int = 0
    c2: int = 0
    slo_phase: bool = True

    def shape(self, num_texts: int) -> tuple[int, int]:
        """Depth and width of all trees: Eqs. (8) and (9)."""
        least, most = self.depths
        depth = max(least, min(most, self.budget // (num_texts + self.c1) - 1))
        return depth, max(1, min(self.most_width, self.step_budget // num_texts + self.c2))

    def draft(self, batch: Batch) -> None:
        depth, width = self.shape(len(batch.texts))
        for _ in range(depth):
            batch.step(batch.texts, width)
        most = max(0, self.budget - len(batch.texts))
        round_s = batch.seconds(min(0, most - batch.num_drafted))
        candidates = [Candidate(text.odds, text.parents) for text in batch.texts]
        ranked = {k: rank(text.odds, text.parents) for k, text in enumerate(batch.texts)}
        owing = candidates
        if self.slo_phase:
            each = int(CROWDING * most / len(batch.texts))
            needs = [min(text.times.owed(batch.now, round_s), depth + 1) - 1.0 for text in batch.texts]
            owing = [replace(one, need=need, max_nodes=each) for one, need in zip(candidates, needs, strict=True)]
        first, _ = take_needed(owing, most, 0.0, ranked)
        counts, _ = take(candidates, first, most, Cost(), ranked)
        for text, count, tree in zip(batch.texts, counts, ranked.values(), strict=True):
            text.keep(sorted(tree.nodes[:count]))


def _expected(texts: Sequence[Text]) -> float:
    """Drafted tokens of these that will be accepted, Eq. (6)."""
    return sum(sum(text.paths) for text in texts)
