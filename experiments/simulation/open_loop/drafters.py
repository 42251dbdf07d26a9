"""Chooses lengths of drafts where one device drafts for all and then verifies (`together.py`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from experiments.simulation.open_loop.together import Batch, Text

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


def _expected(texts: Sequence[Text]) -> float:
    """Drafted tokens of these that will be accepted, Eq. (6)."""
    return sum(sum(text.paths) for text in texts)
