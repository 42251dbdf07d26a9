"""Texts of a service that wait for few places: worlds of the nodes whose memory holds so many texts and no more.

One page has room for any text, so a page is a place, which an order of the verify node gives and takes away. Who comes
back to one has its text read again. The draft model shares the verify node's GPU. Lengths are of a recorded service, or
drawn; drafts agree as recorded, or by a rate. Every order meets the same requests.
"""

import csv
import gzip
import math
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

from experiments.simulation.arrivals import Arrival
from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.open_loop.traffic import FOLDER
from experiments.simulation.settings import Settings
from experiments.simulation.texts import proposals
from experiments.simulation.texts.acceptance import Acceptance, Independent
from experiments.simulation.texts.recorded import RecordedText
from experiments.simulation.world import World
from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import CostModel, Linear
from verify_node.scheduler.orders.base import Job, Order
from verify_node.scheduler.orders.laps import RateHistory, stable_rate
from verify_node.scheduler.preempt import Preemption

ALL = "all"
SHORTEST = 50
"""Tokens of the shortest recorded text that a longer one goes through over and over, if there are others."""

PAGE_SIZE = 4096
LIMIT_S = 1e5


@dataclass(frozen=True)
class Kind:
    """One kind of requests. Lengths are of a trace, or lie around a mean."""

    prompt_tokens: int
    domains: list[str] = field(default_factory=list)
    """Recorded texts whose agreement they have: of all domains (`all`), or of those of these that were recorded."""
    acceptance: tuple[float, float] = (0.0, 1.0)  # without domains: every text's own rate lies anywhere between
    trace: str | None = None  # of whose outputs they are as long as: name of a trace's file, without endings
    output_tokens: float = 0.0
    output_spread: float = 0.0  # standard deviation
    max_context: int = 2048


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and what may be known of its length before it begins."""

    arrival: Arrival
    predicted_tokens: int  # what a length predictor says
    recorded_prompt: int  # tokens of the prompt in the trace that the length is of, by which lengths are learned


def make(kind: Kind, number: int, window_s: float, error: float, random: Random, recordings: str = "") -> list[Request]:
    """So many requests that come at any time of the window, independently.

    error: sigma of the log-normal error of predicted lengths. recordings: file of the domains' texts; empty: the
    shipped one.
    """
    times, texts = sorted(random.uniform(0.0, window_s) for _ in range(number)), _texts(kind, recordings)
    found = []
    for at_s in times:
        recorded_prompt, output_tokens = _lengths(kind, random)
        text = random.choice(texts) if texts else Independent(random.uniform(*kind.acceptance))
        predicted = max(1, round(output_tokens * math.exp(random.gauss(0.0, error))))
        found.append(Request(Arrival(at_s, kind.prompt_tokens, output_tokens, text), predicted, recorded_prompt))
    return found


def _texts(kind: Kind, recordings: str) -> list[Acceptance]:
    """All texts of its domains, with each of the draft models that stand for a family's."""
    if not kind.domains:
        return []
    known = proposals.load(recordings)
    there = sorted({text.domain for text in known.at(1.0)})
    domains = there if kind.domains == [ALL] else [name for name in kind.domains if name in there]
    if not domains:
        what = f"{known.path} has no texts of {', '.join(kind.domains)}, only of {', '.join(there)}"
        raise ConfigError(f"{what}; give --config a file whose kinds have domains of these")
    own = [text for text in known.at(1.0) if text.domain in domains]
    own = [text for text in own if text.num_tokens >= SHORTEST] or own
    models = dict.fromkeys((known.stand_in(0), known.stand_in(1)))
    return [RecordedText([text], model, known.off_path(model, 1.0)) for model in models for text in own]


def history(kind: Kind, number: int, random: Random) -> list[tuple[int, int]]:
    """Tokens of prompt and text of so many earlier requests."""
    return [_lengths(kind, random) for _ in range(number)]


def _lengths(kind: Kind, random: Random) -> tuple[int, int]:
    """Tokens of a prompt, as it was recorded, and of the text."""
    if kind.trace is not None:
        prompt, drawn = random.choice(lengths(kind.trace))
    else:
        prompt, drawn = kind.prompt_tokens, max(1, round(random.gauss(kind.output_tokens, kind.output_spread)))
    return prompt, min(drawn, kind.max_context - kind.prompt_tokens)


@cache
def lengths(trace: str) -> Sequence[tuple[int, int]]:
    """Tokens of prompt and output of a trace's requests."""
    with gzip.open(FOLDER / f"{trace}.csv.gz", "rt", newline="") as lines:
        found = [(int(row["prompt_tokens"]), int(row["output_tokens"])) for row in csv.DictReader(lines)]
        return [(prompt, output) for prompt, output in found if output > 0]


@dataclass(frozen=True)
class Service:
    """The verify node that serves the requests."""

    target: CostModel
    draft: CostModel  # of a pass of the draft model on the same GPU
    num_drafted: int  # most tokens of a draft
    num_places: int


@dataclass(slots=True)
class Work:
    """One text's time in rounds that decided tokens of it, and what was guessed of it."""

    seconds: float = 0.0
    num_rounds: int = 0
    num_tokens: int = 0
    rates: RateHistory = field(default_factory=RateHistory)
    guess: tuple[float, float] | None = None  # of `seconds` in the end, with the true length and with the predicted one


@dataclass(frozen=True)
class Served:
    """The texts as they were served."""

    latencies_s: list[float]
    works: list[Work]
    num_preempted: int


Remaining = Callable[[Request, int], float]
"""(a request, tokens of its text so far) -> the tokens that are left, as an order is told."""


def _places(service: Service, requests: Sequence[Request]) -> Settings:
    """Returns the world of a verify node with so few places: each text fills a page."""
    return Settings(
        num_clients=1,
        stops=0.0,
        arrivals=(tuple(one.arrival for one in requests),),
        policy="fixed",
        budget=service.num_drafted * len(requests),
        max_draft=service.num_drafted,
        max_round_tokens=PAGE_SIZE,
        num_pages=service.num_places,
        page_size=PAGE_SIZE,
        context_len=PAGE_SIZE,
        max_sessions=len(requests),
        self_draft=False,
        known_cost=True,
        round_cost=service.target,
        own_draft_cost=service.draft,
        draft_cost=(Linear(),),
        latency_s=(0.0,),
        order="laps",  # until it is replaced
    )


def serve(
    service: Service,
    requests: Sequence[Request],
    order: Order,
    remaining: Remaining,
    *,
    num_rounds: int,
    tolerance: float,
) -> Served:
    """Serves the requests, to the last one's end.

    num_rounds, tolerance: gamma and delta of a stable rate, with which a text's time is guessed.
    """
    told = _Told(order, requests, remaining)
    works: dict[bytes, Work] = {}

    def note(finished: Finished) -> None:
        decided = {entry.session_id for entry in finished.round.entries if entry.samples}
        for verdict in finished.verdicts:
            if verdict.session_id in decided:
                work = works.setdefault(verdict.session_id, Work())
                work.seconds += finished.duration_s
                work.num_rounds += 1
                work.num_tokens += len(verdict.tokens)
                work.rates.observe(verdict.num_accepted, verdict.num_verified)
                rate = stable_rate(work.rates.rates, num_rounds, tolerance)
                if work.guess is None and rate is not None:
                    work.guess = guess(work, told.request(verdict.session_id), rate, service.num_drafted)

    world = World(1, _places(service, requests), note)
    core = world.verify.core
    assert core is not None
    told.sessions = core.sessions
    core.rounds.preemption = Preemption(told, core.rounds.cost, core.pool)
    world.run(LIMIT_S)
    [draft] = world.drafts
    latencies_s = [(one.times.last_at or 0.0) - one.times.asked_at for one in draft.done]
    return Served(latencies_s, list(works.values()), core.counts.num_preempted)


def guess(work: Work, request: Request, rate: float, num_drafted: int) -> tuple[float, float]:
    """The seconds that the text takes in all, if every round to come takes the mean of those before, by Eq. (6)."""
    per_token_s = work.seconds / work.num_rounds / (num_drafted * rate + 1.0)
    left = (max(0, length - work.num_tokens) for length in (request.arrival.output_tokens, request.predicted_tokens))
    known, predicted = (work.seconds + tokens * per_token_s for tokens in left)
    return known, predicted


class _Told(Order):
    """An order that is told by `remaining` how long texts are, instead of what the verify node has learned."""

    def __init__(self, order: Order, requests: Sequence[Request], remaining: Remaining) -> None:
        self.displaces, self.by_arrival = order.displaces, False
        self.sessions: Any = {}
        self._order, self._requests, self._remaining = order, requests, remaining
        self._times = [one.arrival.at_s for one in requests]

    def request(self, session_id: Hashable) -> Request:
        """The request that a session is for: the latest that had come when it was opened."""
        return self._requests[bisect_right(self._times, self.sessions[session_id].arrived_at) - 1]

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        return self._order.rank([self._job(job) for job in jobs], now)

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        return self._order.yields(holder, waiter, now)

    def _job(self, job: Job) -> Job:
        session = self.sessions[job.job_id]
        num_written = len(session.tokens) - len(session.opened.prompt)
        return replace(job, remaining_tokens=self._remaining(self.request(job.job_id), num_written))
