"""Serves requests in rounds, at few places at once, in some order, on a virtual clock.

One round drafts for everybody who has a place and verifies that in one pass. Whoever gets its first place has its
prompt read, and whoever comes back to one has its keys and values brought back; the others' rounds go on meanwhile.
Knows no order by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from experiments.simulation.queueing.places import give
from experiments.simulation.queueing.requests import Request
from goodspeed.fair.round_time import Roofline
from verify_node.scheduler.orders.base import Job, Order
from verify_node.scheduler.orders.laps import RateHistory


@dataclass(frozen=True)
class Times:
    """Times of the server's work."""

    target: Roofline
    draft: Roofline
    num_drafted: int  # n, of each round and text
    switch_s: float  # for each token of a text that comes back to a place: its keys and values leave and return

    def drafting_s(self, num_texts: int) -> float:
        """One step of the draft model."""
        return self.draft.round_s(num_texts, num_texts, 0)

    def round_s(self, num_texts: int, context_tokens: int) -> float:
        verified = num_texts * (self.num_drafted + 1)
        steps_s = self.num_drafted * self.drafting_s(num_texts)
        return steps_s + self.target.round_s(verified, num_texts, context_tokens)

    def prefill_s(self, num_tokens: int) -> float:
        return self.target.round_s(num_tokens, 1, 0)


@dataclass(slots=True)
class Text:
    """One request while it is served."""

    request: Request
    num_rounds: int = 0
    num_tokens: int = 0
    attained_s: float = 0.0  # in turns before this one
    working_s: float = 0.0  # of that, in rounds and its prompt: not in switches, nor waiting for others' rounds
    waits_since: float | None = 0.0  # None: it has a place
    seated_at: float = 0.0
    ready_at: float = 0.0  # then its prompt is read, or its keys and values are back
    rates: RateHistory = field(default_factory=RateHistory)
    done_at: float = 0.0
    num_switches: int = 0
    guess: "Guess | None" = None
    seen: Job | None = None  # while it waits nothing of it changes

    @property
    def latency_s(self) -> float:
        return self.done_at - self.request.at_s

    @property
    def context_tokens(self) -> int:
        return self.request.prompt_tokens + self.num_tokens

    @property
    def is_done(self) -> bool:
        return self.num_rounds == len(self.request.accepted)


@dataclass(frozen=True, slots=True)
class Guess:
    """The guess at a text's own work, in seconds, when its acceptance rate became stable."""

    known_length_s: float
    predicted_length_s: float


RemainingTokens = Callable[[Text], float]
"""The remaining tokens that an order is told, or any other remaining size."""


@dataclass(slots=True)
class Server:
    """The places, and who has them."""

    order: Order
    num_places: int
    times: Times
    remaining: RemainingTokens
    preempts: bool = True  # the order may take a place away: it is asked in every round
    gamma: int = 8
    stable: Callable[[Sequence[float]], float | None] | None = None  # A_i of rates; None: nothing is guessed
    on_done: Callable[[Text], None] = lambda text: None
    now: float = 0.0
    present: list[Text] = field(default_factory=list)

    def serve(self, requests: Sequence[Request]) -> list[Text]:
        """All of them, to the last."""
        coming, done = list(requests)[::-1], []
        while coming or self.present:
            if not self.present:
                self.now = max(self.now, coming[-1].at_s)
            while coming and coming[-1].at_s <= self.now:
                request = coming.pop()
                self.present.append(Text(request, waits_since=request.at_s, rates=RateHistory(self.gamma)))
            self._give_places()
            done += self._round(coming[-1].at_s if coming else inf)
        return done

    def _give_places(self) -> None:
        num_seated = sum(text.waits_since is None for text in self.present)
        if not self.preempts and num_seated in (self.num_places, len(self.present)):
            return
        texts = {text.request.number: text for text in self.present}
        given = give(self.order, [self._job(text) for text in self.present], self.num_places, self.now)
        for job in given.leave:
            text = texts[_number(job)]
            text.attained_s += self.now - text.seated_at
            text.waits_since = self.now
        for job in given.enter:
            self._enter(texts[_number(job)])

    def _enter(self, text: Text) -> None:
        text.waits_since, text.seated_at, text.seen = None, self.now, None
        if text.num_rounds:
            text.num_switches += 1
            text.ready_at = self.now + self._switch_s(text)
            return
        seconds = self.times.prefill_s(text.request.prompt_tokens)
        text.working_s += seconds
        text.ready_at = self.now + seconds

    def _switch_s(self, text: Text) -> float:
        return self.times.switch_s * text.context_tokens if text.num_rounds else 0.0

    def _round(self, next_at: float) -> list[Text]:
        """One round of those who are ready; where nobody is, time passes. Returns the texts that are over."""
        seated = [text for text in self.present if text.waits_since is None]
        running = [text for text in seated if text.ready_at <= self.now]
        if not running:
            self.now = min(min(text.ready_at for text in seated), max(next_at, self.now) if self.preempts else inf)
            return []
        seconds = self.times.round_s(len(running), sum(text.context_tokens for text in running))
        self.now += seconds
        for text in running:
            accepted = text.request.accepted[text.num_rounds]
            text.num_rounds += 1
            text.num_tokens += accepted + 1
            text.working_s += seconds
            text.rates.observe(accepted, self.times.num_drafted)
            self._guess(text)
        done = [text for text in running if text.is_done]
        for text in done:
            text.done_at = self.now
            self.present.remove(text)
            self.on_done(text)
        return done

    def _guess(self, text: Text) -> None:
        rate = self.stable(text.rates.rates) if self.stable is not None and text.guess is None else None
        if rate is None:
            return
        job = self._job(text)
        per_token_s = (job.num_drafted * job.draft_s + job.round_s) / (job.num_drafted * rate + 1.0)
        known, predicted = (
            text.working_s + max(0, tokens - text.num_tokens) * per_token_s
            for tokens in (text.request.output_tokens, text.num_tokens + job.remaining_tokens)
        )
        text.guess = Guess(known, predicted)

    def _job(self, text: Text) -> Job:
        if text.seen is not None and text.waits_since == text.seen.waits_since:
            return text.seen
        turn_s = self.now - text.seated_at if text.waits_since is None else 0.0
        text.seen = Job(
            job_id=text.request.number,
            arrived_at=text.request.at_s,
            waits_since=text.waits_since,
            attained_s=text.attained_s + turn_s,
            turn_s=turn_s,
            remaining_tokens=self.remaining(text),
            rates=text.rates.rates,
            num_drafted=self.times.num_drafted,
            draft_s=self.times.drafting_s(1),
            round_s=self.times.target.round_s(self.times.num_drafted + 1, 1, text.context_tokens),
            recompute_s=self._switch_s(text),
        )
        seen = text.seen
        if text.waits_since is None:
            text.seen = None
        return seen


def _number(job: Job) -> int:
    assert isinstance(job.job_id, int)
    return job.job_id
