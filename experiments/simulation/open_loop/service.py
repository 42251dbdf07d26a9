"""Runs a world to whose users requests come by a schedule, and tells what became of each. Knows no policies."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, NamedTuple

from experiments.simulation.arrivals import Arrival, Schedule, dealt_out
from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.nodes.users import UserText
from experiments.simulation.settings import Settings
from experiments.simulation.world import World
from goodspeed.fair.round_time import CostModel
from goodspeed.slo.attainment import NO_OBJECTIVES, SLACK, Kept, Times
from goodspeed.slo.capacity import FLOOR
from verify_node.core.core import VerifyCore
from verify_node.session.draft_tokens import DraftTokens
from verify_node.session.session import Session
from verify_node.slo.allotting import Allotment
from verify_node.slo.promises import Promises

LIMIT_S = 1e5
LOOK = 64
"""Rounds between two looks at how many texts missed their levels."""

PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class Served:
    """One text that is complete."""

    kept: Kept
    num_tokens: int
    seconds: float  # from its request to its last token

    @classmethod
    def by(cls, times: Times, promised: bool | None = False) -> "Served":
        return cls(times.kept(promised), times.num_tokens, (times.last_at or times.asked_at) - times.asked_at)

    @property
    def tier(self) -> str:
        return self.kept.slo.tier

    @property
    def attained(self) -> bool:
        return self.kept.outcome == "attained"


class Request:
    """One request while it is served without nodes, and what is left of it to do."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.times = Times(arrival.at_s, arrival.slo or NO_OBJECTIVES)
        self.unread = self.tokens = arrival.prompt_tokens
        self.left = arrival.output_tokens

    def write(self, num_tokens: int, now: float) -> int:
        """Returns how many of so many tokens belong to the text."""
        num_tokens = min(num_tokens, self.left)
        self.left -= num_tokens
        self.tokens += num_tokens
        self.times.delivered(num_tokens, now)
        return num_tokens


class Scheduling(NamedTuple):
    """The work for promises before one round."""

    num_new: int  # requests that were decided on
    num_promised: int  # of all, then
    seconds: float  # CPU time of this machine


@dataclass(slots=True)
class Service:
    """A world's figures until its last text was over, or until too many were missed."""

    texts: list[Served]
    seconds: float
    num_rounds: int = 0
    busy_s: float = 0.0  # in rounds
    num_verdicts: int = 0  # of texts that had a token
    num_drafted: int = 0  # of tokens, verified
    num_accepted: int = 0
    selection_s: float = 0.0  # CPU time of this machine
    num_preempted: int = 0  # times that a session lost its memory
    num_missed: int = 0  # where the run ended early: texts that had missed their levels by then, over or not
    scheduling: list["Scheduling"] = field(default_factory=list)  # before each round

    @property
    def attainment(self) -> float:
        """Share of the texts that were in time."""
        return sum(text.attained for text in self.texts) / len(self.texts)

    @property
    def promised(self) -> list[Served]:
        """The texts whose service level was promised."""
        return [text for text in self.texts if text.kept.promised]

    @property
    def goodput(self) -> float:
        """Tokens per second of texts that were in time."""
        return sum(text.num_tokens for text in self.texts if text.attained) / self.seconds

    @property
    def mean_s(self) -> float:
        """From a request to its last token."""
        return sum(text.seconds for text in self.texts) / len(self.texts)

    @property
    def drafted(self) -> float:
        """Drafted tokens of a text that are verified in one round."""
        return self.num_drafted / max(1, self.num_verdicts)

    @property
    def accepted(self) -> float:
        """Drafted tokens of a text that are accepted in one round."""
        return self.num_accepted / max(1, self.num_verdicts)

    @property
    def selecting(self) -> float:
        """Time spent on the choice of drafted tokens, on this machine, as a share of the simulated time in rounds."""
        return self.selection_s / self.busy_s

    def tpots(self) -> list[float]:
        """Seconds per token of each text that has two tokens or more."""
        return [text.kept.tpot_s for text in self.texts if text.kept.tpot_s is not None]

    def note(self, finished: Finished) -> None:
        self.num_rounds += 1
        self.busy_s += finished.duration_s
        prefilled = set(finished.round.prefilled)
        for verdict in finished.verdicts:
            if verdict.session_id not in prefilled:
                self.num_verdicts += 1
                self.num_drafted += verdict.num_verified
                self.num_accepted += verdict.num_accepted


def with_draft_nodes(
    num_clients: int, budget: int, max_round_tokens: int, round_cost: CostModel, step: CostModel, latency_s: float = 0.0
) -> Settings:
    """A verify node that knows its cost and drafts nothing itself. step: of the draft nodes' models."""
    return Settings(
        num_clients=num_clients,
        budget=budget,
        max_round_tokens=max_round_tokens,
        round_cost=round_cost,
        known_cost=True,
        draft_cost=(step,),
        latency_s=(latency_s,),
        self_draft=False,
    )


def serve(
    settings: Settings,
    arrivals: Sequence[Arrival],
    seed: int,
    *,
    pool_tokens: int | None = None,
    most_missed: float = inf,
) -> Service:
    """The world of that seed, from the first request until the last text is over; settings say how many draft nodes.

    pool_tokens: the verify node's memory of keys and values, in which the longest text has to fit; None: enough.
    most_missed: texts that may miss their levels; the run ends once more have.
    """
    schedules = dealt_out(arrivals, settings.num_clients)
    service = Service([], 0.0)

    def note(finished: Finished) -> None:
        service.note(finished)
        if most_missed < inf and service.num_rounds % LOOK == 0 and (missed := num_missed(world)) > most_missed:
            service.num_missed = missed
            world.abandon()

    world = World(seed, roomy(settings, arrivals, schedules, pool_tokens), note)
    core = core_of(world)
    watched = Stopwatch(core)
    core.admission.promises = promises = WatchedPromises(core)
    world.run(LIMIT_S)
    service.seconds, service.selection_s = world.now, watched.seconds
    service.num_preempted, service.scheduling = core.counts.num_preempted, promises.done
    service.texts += [served(generation) for draft in world.drafts for generation in draft.done]
    return service


def num_missed(world: World) -> int:
    """Texts that missed their levels: those that are over, and those whose first token is late."""
    number, now = 0, world.now
    for draft in world.drafts:
        number += sum(one.times.kept().outcome != "attained" for one in draft.done)
        for one in draft.generations.values():
            times, ttft_s = one.times, one.times.slo.ttft_s
            waited_s = now - times.asked_at if times.ttft_s is None else times.ttft_s
            number += ttft_s is not None and waited_s > ttft_s + SLACK
    return number


def roomy(
    settings: Settings, arrivals: Sequence[Arrival], schedules: tuple[Schedule, ...], pool_tokens: int | None
) -> Settings:
    """The settings of a verify node on which all of the arrivals may be open and promised at once; any of them fits.

    schedules: those of its own draft nodes. pool_tokens: as `serve` has it.
    """
    longest = max(arrival.prompt_tokens + arrival.output_tokens for arrival in arrivals)
    pages = -(-longest // PAGE_SIZE) + 1
    return replace(
        settings,
        arrivals=schedules,
        stops=0.0,
        page_size=PAGE_SIZE,
        num_pages=ceil(len(arrivals) * pages / (1.0 - FLOOR)) if pool_tokens is None else pool_tokens // PAGE_SIZE,
        context_len=pages * PAGE_SIZE,
        max_sessions=len(arrivals),
    )


def core_of(world: World) -> VerifyCore:
    """The world's verify node, which never goes."""
    core = world.verify.core
    assert core is not None
    return core


def served(generation: UserText) -> Served:
    """A complete text of our nodes."""
    return Served.by(generation.times, generation.session.promised)


class Stopwatch:
    """Measures the CPU time that a verify node takes to choose drafted tokens."""

    def __init__(self, core: VerifyCore) -> None:
        self.seconds = 0.0
        self._choose = core.rounds.choice.choose
        core.rounds.choice.choose = self._timed  # type: ignore[assignment, method-assign]

    def _timed(self, *given: Any) -> dict[bytes, DraftTokens]:
        started = time.thread_time()
        chosen = self._choose(*given)
        self.seconds += time.thread_time() - started
        return chosen


class WatchedPromises(Promises):
    """The promises of a verify node that has none yet, with a stopwatch for the CPU time before each round."""

    def __init__(self, core: VerifyCore) -> None:
        super().__init__(core.promises.policy, core.rounds.cost, core.limits.max_round_tokens, core.pool)
        self.done: list[Scheduling] = []
        self._deciding_s, self._num_new = 0.0, 0  # since the last round

    def decide(self, sessions: Mapping[bytes, Session], now: float) -> dict[bytes, bool]:
        started = time.thread_time()
        decided = super().decide(sessions, now)
        self._deciding_s += time.thread_time() - started
        self._num_new += len(decided)
        return decided

    def allot(self, sessions: Mapping[bytes, Session], ready: Iterable[Session], now: float) -> Allotment:
        started = time.thread_time()
        allotment = super().allot(sessions, ready, now)
        seconds = self._deciding_s + time.thread_time() - started
        self.done.append(Scheduling(self._num_new, len(self.promised), seconds))
        self._deciding_s, self._num_new = 0.0, 0
        return allotment
