"""Runs a world to whose users requests come by a schedule, and tells what became of each. Knows no policies."""

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from experiments.simulation.arrivals import Arrival, dealt_out
from experiments.simulation.rounds import Finished
from experiments.simulation.settings import Settings
from experiments.simulation.world import World
from goodspeed.slo.kept import Kept
from goodspeed.slo.objectives import Objectives
from verify_node.rounds.choice import Choice
from verify_node.rounds.drafted import Drafted
from verify_node.rounds.planner import Hope
from verify_node.session.session import Session

LIMIT_S = 1e5
PAGE_SIZE = 16
NOTHING = Objectives()


@dataclass(frozen=True, slots=True)
class Served:
    """One text that is complete."""

    kept: Kept
    num_tokens: int
    seconds: float  # from its request to its last token

    @property
    def attained(self) -> bool:
        return self.kept.outcome == "attained"


@dataclass(slots=True)
class Service:
    """What a world did until its last text was over."""

    texts: list[Served]
    seconds: float
    num_rounds: int = 0
    busy_s: float = 0.0  # in rounds
    num_verdicts: int = 0  # of texts that had a token
    num_drafted: int = 0  # of tokens, verified
    num_accepted: int = 0
    selection_s: float = 0.0  # of this machine's time

    @property
    def attainment(self) -> float:
        """Share of the texts that were in time."""
        return sum(text.attained for text in self.texts) / len(self.texts)

    @property
    def goodput(self) -> float:
        """Tokens per second of texts that were in time."""
        return sum(text.num_tokens for text in self.texts if text.attained) / self.seconds

    @property
    def tokens_per_s(self) -> float:
        return sum(text.num_tokens for text in self.texts) / self.seconds

    @property
    def mean_s(self) -> float:
        """From a request to its last token."""
        return sum(text.seconds for text in self.texts) / len(self.texts)

    @property
    def drafted(self) -> float:
        """Drafted tokens of a text that are verified in one round."""
        return self.num_drafted / self.num_verdicts

    @property
    def accepted(self) -> float:
        """Drafted tokens of a text that are accepted in one round."""
        return self.num_accepted / self.num_verdicts

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


def serve(settings: Settings, arrivals: Sequence[Arrival], seed: int) -> Service:
    """The world of that seed, from the first request until the last text is over; settings say how many draft nodes."""
    longest = max(arrival.prompt_tokens + arrival.output_tokens for arrival in arrivals)
    pages = -(-longest // PAGE_SIZE) + 1
    roomy = replace(
        settings,
        arrivals=dealt_out(arrivals, settings.num_clients),
        stops=0.0,
        page_size=PAGE_SIZE,
        num_pages=len(arrivals) * pages,
        context_len=pages * PAGE_SIZE,
        max_sessions=len(arrivals),
    )
    service = Service([], 0.0)
    world = World(seed, roomy, service.note)
    watched = Watched(world)
    world.run(LIMIT_S)
    service.seconds, service.selection_s = world.now, watched.seconds
    for draft in world.drafts:
        for generation in draft.done:
            times, slo = generation.times, generation.session.request.slo
            took_s = (times.last_at or world.now) - times.asked_at
            service.texts.append(Served(times.kept(slo or NOTHING), times.num_tokens, took_s))
    return service


class Watched:
    """The choice of a world's verify node, with a stopwatch."""

    def __init__(self, world: World) -> None:
        core = world.verify.core
        assert core is not None
        self.seconds = 0.0
        self._choice: Choice = core.choice
        core.choice = self

    def choose(self, ready: Sequence[Session], now: float) -> dict[bytes, Drafted]:
        started = time.perf_counter()
        chosen = self._choice.choose(ready, now)
        self.seconds += time.perf_counter() - started
        return chosen

    def least_odds(self, session: Session) -> int:
        return self._choice.least_odds(session)

    def owes_more(self, session: Session) -> bool:
        return self._choice.owes_more(session)

    def hopes(self, ready: Sequence[Session], number: int) -> list[Hope]:
        return self._choice.hopes(ready, number)

    def keep(self, open_sessions: Container[bytes]) -> None:
        self._choice.keep(open_sessions)

    def looks_at_offers(self, yes: bool) -> None:
        self._choice.looks_at_offers(yes)
