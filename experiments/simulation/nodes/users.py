"""The users of a simulated draft node: what they ask for, one after the other or by a schedule, and what they get."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from draft_node.core.actions import Fail, Finish
from draft_node.core.generation import Generation
from draft_node.core.session import Session
from experiments.simulation.arrivals import Arrival, Schedule
from experiments.simulation.nodes.surroundings import Surroundings
from experiments.simulation.settings import of_client
from experiments.simulation.texts.acceptance import Acceptance, Independent
from experiments.simulation.texts.text import STOP, VOCAB
from goodspeed.slo.attainment import Times
from goodspeed.wire.messages import Sampling


@dataclass(slots=True)
class UserText:
    """One request and what its user got."""

    session: Session
    acceptance: Acceptance
    moved_at: float  # it got something new, or began
    times: Times  # at which its user got its tokens
    cancel_after: int | None = None  # tokens
    delivered: list[int] = field(default_factory=list)
    finish: Finish | None = None
    fail: Fail | None = None
    cancelled: bool = False
    ended: "Circumstances | None" = None  # set with `finish` or `fail`


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances when a user was told the end of a text."""

    was_stopping: bool  # the draft node stopped in good order
    away_s: float  # for how long its verify node had been away


class Users:
    """The users of one draft node."""

    def __init__(self, world: Surroundings, index: int, random: Random) -> None:
        self._world = world
        self._index = index
        self._random = random
        arrivals = world.settings.arrivals
        self._schedule: Schedule | None = of_client(arrivals, index) if arrivals else None
        self._num_started = 0
        self._last_prompt: tuple[int, ...] = ()

    @property
    def want_more(self) -> bool:
        """True if there is a request now."""
        if self._schedule is not None:
            arrival = self._arrival(self._num_started)
            return arrival is not None and arrival.at_s <= self._world.clock.now
        return self._num_started < self._world.settings.num_sessions

    @property
    def num_at_once(self) -> float:
        """Requests that are served at once: all, where they come by a schedule."""
        settings = self._world.settings
        if self._schedule is not None:
            return inf
        return of_client(settings.loads, self._index) if settings.loads else settings.num_at_once

    def come(self, start: Callable[[], None]) -> None:
        """Calls `start` whenever a request of the schedule has come."""
        for arrival in self._schedule or ():
            self._world.clock.at(arrival.at_s, start)

    def next_request(self) -> Generation:
        settings, random = self._world.settings, self._random
        arrival = self._arrival(self._num_started)
        if arrival is not None:
            sizes: tuple[int, int] | None = (arrival.prompt_tokens, arrival.output_tokens)
        else:
            sizes = settings.sizes(self._index, self._num_started) if settings.sizes is not None else None
        self._num_started += 1
        user = f"user-{self._num_started % settings.num_users}"
        return Generation(
            session_id=random.randbytes(16),
            prompt=self._prompt(sizes[0] if sizes else random.randint(1, settings.prompt_len)),
            sampling=Sampling(settings.temperature, seed=random.getrandbits(40)),
            max_tokens=sizes[1] if sizes else random.randint(settings.min_tokens, settings.max_tokens),
            stop_ids=(STOP,) if random.random() < settings.stops else (),
            verification=of_client(settings.verification, self._index),
            max_draft=settings.max_draft,
            user=user,
            slo=arrival.slo if arrival is not None else settings.slos[self._num_started % len(settings.slos)],
            asked_at=self._world.clock.now,
            cache_salt=user.encode() if settings.prefix_cache else b"",
        )

    def _prompt(self, length: int) -> tuple[int, ...]:
        """Any tokens, or first some of the last prompt's, and then any."""
        repeats, random = self._world.settings.repeats, self._random
        tokens = tuple(random.choices(range(VOCAB), k=length))
        if repeats and random.random() < repeats:
            num_same = random.randint(0, len(self._last_prompt))
            tokens = self._last_prompt[:num_same] + tokens[num_same:]
        self._last_prompt = tokens
        return tokens

    def acceptance(self) -> Acceptance:
        """Returns how likely drafts of the newest request are accepted."""
        settings = self._world.settings
        arrival = self._arrival(self._num_started - 1)
        if arrival is not None:
            return arrival.acceptance
        if settings.acceptance is not None:
            return settings.acceptance(self._index, self._num_started - 1)
        return Independent(of_client(settings.alpha, self._index))

    def _arrival(self, number: int) -> Arrival | None:
        """The request of that number in the schedule, if there is one."""
        schedule = self._schedule or ()
        return schedule[number] if number < len(schedule) else None

    def cancel_after(self, request: Generation) -> int | None:
        """Tokens after which the user leaves; None: the user stays."""
        cancels = self._random.random() < self._world.settings.faults.cancel
        return self._random.randrange(request.max_tokens) if cancels else None
