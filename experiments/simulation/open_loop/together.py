"""One device drafts for its whole batch, step by step, and then verifies: AdaSpec's and AdaServe's rounds.

A step drafts one token for each text that goes on drafting, and everybody waits for all steps. Or every text has a
draft model elsewhere, and waits for its own draft alone: SLED's rounds. Prompts are read in chunks, beside the texts
that are written. Whether a drafted token is right depends on its text and position alone, so every drafter meets the
same luck; its confidence is the probability that it is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.service import Request, Served, Service
from experiments.simulation.texts.text import draw, feed
from goodspeed.fair.round_time import CostModel


class Text(Request):
    """One request, and its draft of this round."""

    def __init__(self, number: int, arrival: Arrival) -> None:
        super().__init__(arrival)
        self.number = number
        self.ready_at = 0.0  # when its draft is there, which is made elsewhere
        self.confidences: list[float] = []  # of this round's draft
        self.paths: list[float] = []  # Eq. (7): of each drafted token, that all up to it are right

    @property
    def context_tokens(self) -> int:
        return self.tokens - self.unread

    def draft(self) -> None:
        place = self.times.num_tokens + len(self.paths)
        self.confidences.append(self.arrival.acceptance.rate(place, 0, True))
        self.paths.append((self.paths[-1] if self.paths else 1.0) * self.confidences[-1])

    def accept(self, now: float) -> int:
        """Writes the drafted tokens up to the first wrong one, and one more, up to the text's end.

        Returns the number of drafted tokens that were written: tokens beyond the end are no goodput.
        """
        right, most = 0, min(len(self.paths), self.left)
        while right < most and self._is_right(self.times.num_tokens + right, self.confidences[right]):
            right += 1
        self.write(right + 1, now)
        self.confidences, self.paths = [], []
        return right

    def _is_right(self, place: int, confidence: float) -> bool:
        return draw(feed(feed(self.number + 1, place), place))[1] < confidence


@dataclass(slots=True)
class Batch:
    """The texts of one round, and how long it takes so far."""

    texts: list[Text]
    target: CostModel
    draft: CostModel
    drafting_s: float = 0.0

    @property
    def num_drafted(self) -> int:
        return sum(len(text.paths) for text in self.texts)

    def step(self, texts: Sequence[Text]) -> None:
        """One more drafted token for each of these."""
        self.drafting_s += self.step_s(texts)
        for text in texts:
            text.draft()

    def step_s(self, texts: Sequence[Text]) -> float:
        return self.draft.round_s(len(texts), len(texts), sum(text.context_tokens for text in texts))

    def seconds(self, more: int = 0, more_s: float = 0.0) -> float:
        """Eq. (1). more: drafted tokens beside those that are there. more_s: time for these."""
        context = sum(text.context_tokens for text in self.texts)
        verified = len(self.texts) + self.num_drafted + more
        return self.drafting_s + more_s + self.target.round_s(verified, len(self.texts), context)

    def efficiency(self, expected: float, seconds: float, most_s: float) -> float:
        """Alg. 3: tokens per second of all texts. expected: drafted tokens that will be accepted, Eq. (6)."""
        return (len(self.texts) + expected) / seconds if seconds <= most_s else -1.0


class Drafter(Protocol):
    """Says how long drafts become; stateful, one for each run."""

    def draft(self, batch: Batch) -> None: ...


@dataclass(frozen=True)
class Server:
    """A device, or several that run each pass together."""

    target: CostModel
    draft: CostModel
    max_round_tokens: int  # with prompts; texts that are written come first
    prompts_first: bool = False  # or rounds are of prompts only, as long as one is not read (vLLM)
    line_s: float | None = None  # the way to a draft model of each text's own, and back; None: it shares the device

    def serve(self, arrivals: Sequence[Arrival], drafter: Drafter) -> Service:
        """All requests, to the last."""
        coming = [Text(number, arrival) for number, arrival in enumerate(arrivals)][::-1]
        present: list[Text] = []
        service = Service([], 0.0)
        while coming or present:
            if not present:
                service.seconds = max(service.seconds, coming[-1].arrival.at_s)
            while coming and coming[-1].arrival.at_s <= service.seconds:
                present.append(coming.pop())
            self._round(present, drafter, service, coming[-1].arrival.at_s if coming else inf)
            service.texts += [Served.by(text.times) for text in present if not text.left]
            present = [text for text in present if text.left]
        return service

    def _round(self, present: Sequence[Text], drafter: Drafter, service: Service, next_at: float) -> None:
        """One round; where all wait for drafts, time passes. next_at: when the next request comes."""
        unread = [text for text in present if not text.times.num_tokens]
        begun = [text for text in present if text.times.num_tokens and text.ready_at <= service.seconds]
        if not (unread or begun):
            service.seconds = min(next_at, *(text.ready_at for text in present))
            return
        writing = [] if unread and self.prompts_first else begun
        batch = Batch(writing, self.target, self.draft)
        if writing and self.line_s is None:
            drafter.draft(batch)
        num_own = len(writing) + batch.num_drafted
        reading = _chunks(unread, self.max_round_tokens - num_own)
        context = sum(text.context_tokens for text in (*writing, *(text for text, _ in reading)))
        num_tokens = num_own + sum(number for _, number in reading)
        seconds = batch.drafting_s + self.target.round_s(num_tokens, len(writing) + len(reading), context)
        service.seconds += seconds
        service.busy_s += seconds
        service.num_rounds += 1
        for text in writing:
            service.num_verdicts += 1
            service.num_drafted += len(text.paths)
            service.num_accepted += text.accept(service.seconds)
            self._draft_elsewhere(text, drafter, service.seconds)
        for text, number in reading:
            text.unread -= number
            if not text.unread:
                text.write(1, service.seconds)
                self._draft_elsewhere(text, drafter, service.seconds)

    def _draft_elsewhere(self, text: Text, drafter: Drafter, now: float) -> None:
        """The text's next draft, by its own model, from its latest token on."""
        if self.line_s is None or not text.left:
            return
        own = Batch([text], self.target, self.draft)
        drafter.draft(own)
        text.ready_at = now + (self.line_s + own.drafting_s if text.paths else 0.0)


def _chunks(unread: Sequence[Text], room: int) -> list[tuple[Text, int]]:
    """The prompts that are read in a round, the first come first, and how much of each."""
    found = []
    for text in unread:
        number = min(text.unread, room)
        if number <= 0:
            break
        found.append((text, number))
        room -= number
    return found
