"""One device drafts for its whole batch, step by step, and then verifies: AdaSpec's and AdaServe's rounds.

A step drafts one token for each text that goes on drafting, or one layer of its tree, and everybody waits for all
steps. Or every text has a draft model elsewhere, and waits for its own draft alone: SLED's rounds. Prompts are read in
chunks, beside the texts that are written. Which of the draft model's choices is right depends on the text and position
alone, so every drafter meets the same luck; a choice's confidence is the probability that it is right.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Protocol

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.service import Request, Served, Service
from experiments.simulation.texts.text import draw, feed
from goodspeed.drafting.tree import ALTERNATIVES
from goodspeed.exact import trees
from goodspeed.exact.trees import BASE
from goodspeed.fair.round_time import CostModel
from goodspeed.slo.attainment import NO_OBJECTIVES
from verify_node.session.deadline import Deadline


class Text(Request):
    """One request, and its draft of this round: a tree, which is a chain if no layer has more than one node."""

    times: Deadline

    def __init__(self, number: int, arrival: Arrival) -> None:
        super().__init__(arrival)
        slo = arrival.slo or NO_OBJECTIVES
        self.times = Deadline(arrival.at_s, slo=slo, session_id=b"", client="", paced_at=arrival.at_s)
        self.number = number
        self.ready_at = 0.0  # when its draft is there, which is made elsewhere
        self._clear()

    def _clear(self) -> None:
        self.confidences: list[float] = []  # of the first choice in each layer of this round's draft
        self.odds: list[float] = []  # of each drafted token, that it is right if its parent is
        self.paths: list[float] = []  # Eq. (7): that all up to it are right
        self.parents: list[int] = []
        self.ranks: list[int] = []  # among the draft model's choices; 0: the first
        self.layer = range(BASE, 0)  # the nodes that the next step extends

    @property
    def context_tokens(self) -> int:
        return self.tokens - self.unread

    def draft(self, width: int = 1) -> None:
        """One step of a beam search: the `width` likeliest choices after the last layer are the next one."""
        self.confidences.append(self.arrival.acceptance.rate(self.times.num_tokens + len(self.confidences), 0, True))
        odds = _choices(self.confidences[-1])[:width]
        above = [(1.0 if node == BASE else self.paths[node], node) for node in self.layer]
        found = [(path * odd, node, rank) for path, node in above for rank, odd in enumerate(odds)]
        found.sort(key=lambda one: -one[0])
        self.layer = range(len(self.paths), len(self.paths) + min(width, len(found)))
        for path, node, rank in found[:width]:
            self.odds.append(odds[rank])
            self.paths.append(path)
            self.parents.append(node)
            self.ranks.append(rank)

    def keep(self, nodes: Sequence[int]) -> None:
        """Verifies only these nodes, in ascending order, each with its parent."""
        self.parents = list(trees.pick(self.parents, nodes))
        self.odds, self.paths = [self.odds[node] for node in nodes], [self.paths[node] for node in nodes]
        self.ranks = [self.ranks[node] for node in nodes]

    def accept(self, now: float) -> int:
        """Writes the drafted tokens up to the last right one of a path, and one more, up to the text's end.

        Returns the number of drafted tokens that were written: tokens beyond the end are no goodput.
        """
        nodes = {(self.parents[node], self.ranks[node]): node for node in range(len(self.paths))}
        right, at = 0, BASE
        while right < min(len(self.confidences), self.left):
            node = nodes.get((at, self._right(self.times.num_tokens + right, self.confidences[right])))
            if node is None:
                break
            right, at = right + 1, node
        self.write(right + 1, now)
        self._clear()
        return right

    def _right(self, place: int, confidence: float) -> int:
        """The rank of the choice that is right there; beyond all ranks if none is."""
        luck = draw(feed(feed(self.number + 1, place), place))[1]
        return 0 if luck < confidence else bisect_right([*accumulate(_choices(confidence))], luck)


def _choices(confidence: float) -> list[float]:
    """Probabilities that each of the draft model's choices is right, the first first; none is likelier than that."""
    return [confidence, *(min(confidence, share * (1.0 - confidence)) for share in ALTERNATIVES)]


@dataclass(slots=True)
class Batch:
    """The texts of one round, and how long it takes so far."""

    texts: list[Text]
    target: CostModel
    draft: CostModel
    now: float = 0.0
    drafting_s: float = 0.0

    @property
    def num_drafted(self) -> int:
        return sum(len(text.paths) for text in self.texts)

    def step(self, texts: Sequence[Text], width: int = 1) -> None:
        """One more drafted token for each of these, or one more layer of so many."""
        self.drafting_s += self.step_s(texts)
        for text in texts:
            text.draft(width)

    def step_s(self, texts: Sequence[Text]) -> float:
        rows, context = sum(len(text.layer) for text in texts), sum(text.context_tokens for text in texts)
        return self.draft.round_s(rows, len(texts), context)

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
        batch = Batch(writing, self.target, self.draft, service.seconds)
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
        own = Batch([text], self.target, self.draft, now)
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
