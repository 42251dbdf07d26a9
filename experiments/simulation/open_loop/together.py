"""One device drafts for its whole batch, step by step, and then verifies: AdaSpec's and AdaServe's rounds.

A step drafts one token for each text that goes on drafting, and everybody waits for all steps. Or every text has a
draft model elsewhere, and waits for its own draft alone: SLED's rounds. Prompts are read in chunks, beside the texts
that are written. Whether a drafted token is right depends on its text and position alone, so every drafter meets the
same luck; its confidence is the probability that it is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from experiments.simulation.arrivals import Arrival
from experiments.simulation.texts.text import draw, feed
from goodspeed.fair.round_time import CostModel


@dataclass(slots=True)
class Text:
    """One request while it is served."""

    number: int
    arrival: Arrival
    num_read: int = 0  # of its prompt
    num_written: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    ready_at: float = 0.0  # when its draft is there, which is made elsewhere
    confidences: list[float] = field(default_factory=list)  # of this round's draft
    paths: list[float] = field(default_factory=list)  # Eq. (7): of each drafted token, that all up to it are right

    @property
    def context_tokens(self) -> int:
        return self.num_read + self.num_written

    @property
    def num_wanted(self) -> int:
        return self.arrival.output_tokens - self.num_written

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token after the first; None before the second."""
        return (self.last_at - self.first_at) / (self.num_written - 1) if self.num_written > 1 else None

    @property
    def tier(self) -> str:
        return self.arrival.slo.tier if self.arrival.slo is not None else ""

    @property
    def attained(self) -> bool:
        """True if its mean TPOT is what it asked for."""
        wanted = self.arrival.slo.tpot_s if self.arrival.slo is not None else None
        return wanted is None or self.tpot_s is None or self.tpot_s <= wanted

    @property
    def seconds(self) -> float:
        """From its request to its latest token."""
        return self.last_at - self.arrival.at_s

    def draft(self) -> None:
        place = self.num_written + len(self.paths)
        self.confidences.append(self.arrival.acceptance.rate(place, 0, True))
        self.paths.append((self.paths[-1] if self.paths else 1.0) * self.confidences[-1])

    def accept(self, now: float) -> int:
        """Writes the drafted tokens up to the first wrong one, and one more, up to the text's end.

        Returns the number of drafted tokens that were written: tokens beyond the end are no goodput.
        """
        right, most = 0, min(len(self.paths), self.num_wanted)
        while right < most and self._is_right(self.num_written + right, self.confidences[right]):
            right += 1
        self.num_written += min(right + 1, self.num_wanted)
        self.last_at = now
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


@dataclass(slots=True)
class Served:
    """The outcome of all requests."""

    texts: list[Text] = field(default_factory=list)
    seconds: float = 0.0
    num_rounds: int = 0
    busy_s: float = 0.0
    num_verdicts: int = 0
    num_drafted: int = 0  # and verified
    num_accepted: int = 0

    @property
    def mean_s(self) -> float:
        """From a request to its last token."""
        return sum(text.seconds for text in self.texts) / len(self.texts)

    @property
    def attainment(self) -> float:
        """Share of the texts that were in time."""
        return sum(text.attained for text in self.texts) / len(self.texts)

    @property
    def goodput(self) -> float:
        """Tokens per second of texts that were in time."""
        return sum(text.num_written for text in self.texts if text.attained) / self.seconds

    @property
    def drafted(self) -> float:
        return self.num_drafted / max(1, self.num_verdicts)

    @property
    def accepted(self) -> float:
        return self.num_accepted / max(1, self.num_verdicts)

    def tpots(self) -> list[float]:
        """Seconds per token of each text that has two tokens or more."""
        return [text.tpot_s for text in self.texts if text.tpot_s is not None]


@dataclass(frozen=True)
class Server:
    """A device, or several that run each pass together."""

    target: CostModel
    draft: CostModel
    max_round_tokens: int  # with prompts; texts that are written come first
    prompts_first: bool = False  # or rounds are of prompts only, as long as one is not read (vLLM)
    line_s: float | None = None  # the way to a draft model of each text's own, and back; None: it shares the device

    def serve(self, arrivals: Sequence[Arrival], drafter: Drafter) -> Served:
        """All requests, to the last."""
        coming = [Text(number, arrival) for number, arrival in enumerate(arrivals)][::-1]
        present: list[Text] = []
        served = Served()
        while coming or present:
            if not present:
                served.seconds = max(served.seconds, coming[-1].arrival.at_s)
            while coming and coming[-1].arrival.at_s <= served.seconds:
                present.append(coming.pop())
            self._round(present, drafter, served, coming[-1].arrival.at_s if coming else inf)
            served.texts += [text for text in present if not text.num_wanted]
            present = [text for text in present if text.num_wanted]
        return served

    def _round(self, present: Sequence[Text], drafter: Drafter, served: Served, next_at: float) -> None:
        """One round; where all wait for drafts, time passes. next_at: when the next request comes."""
        unread = [text for text in present if not text.num_written]
        begun = [text for text in present if text.num_written and text.ready_at <= served.seconds]
        if not (unread or begun):
            served.seconds = min(next_at, *(text.ready_at for text in present))
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
        served.seconds += seconds
        served.busy_s += seconds
        served.num_rounds += 1
        for text in writing:
            served.num_verdicts += 1
            served.num_drafted += len(text.paths)
            served.num_accepted += text.accept(served.seconds)
            self._draft_elsewhere(text, drafter)
        for text, number in reading:
            text.num_read += number
            if text.num_read == text.arrival.prompt_tokens:
                text.num_written, text.first_at, text.last_at = 1, served.seconds, served.seconds
                self._draft_elsewhere(text, drafter)

    def _draft_elsewhere(self, text: Text, drafter: Drafter) -> None:
        """The text's next draft, by its own model, from its latest token on."""
        if self.line_s is None or not text.num_wanted:
            return
        own = Batch([text], self.target, self.draft)
        drafter.draft(own)
        text.ready_at = text.last_at + (self.line_s + own.drafting_s if text.paths else 0.0)


def _chunks(unread: Sequence[Text], room: int) -> list[tuple[Text, int]]:
    """The prompts that are read in a round, the first come first, and how much of each."""
    found = []
    for text in unread:
        number = min(text.arrival.prompt_tokens - text.num_read, room)
        if number <= 0:
            break
        found.append((text, number))
        room -= number
    return found
