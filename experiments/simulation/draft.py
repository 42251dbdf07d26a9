"""A draft node of the simulated world: carries out, on the world's clock, what `DraftCore` decides."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from random import Random

from draft_node.core.actions import Deliver, Fail, Finish, NodeAction, Propose, Proposed, Request, Send, Tell
from draft_node.core.core import DraftCore
from draft_node.core.link import VerifyLink
from draft_node.core.session import Session
from experiments.simulation.acceptance import Acceptance, Independent
from experiments.simulation.models import DraftModel
from experiments.simulation.network import Line
from experiments.simulation.settings import of_client
from experiments.simulation.surroundings import Surroundings
from experiments.simulation.text import STOP, VOCAB
from goodspeed.wire.messages import VERSION, DownMessage, Hello, Sampling, UpMessage

TIMEOUT_S = 3.0


@dataclass(slots=True)
class Generation:
    """One request and what its user got."""

    session: Session
    delivered: list[int] = field(default_factory=list)
    cancel_after: int | None = None  # tokens
    finish: Finish | None = None
    fail: Fail | None = None
    cancelled: bool = False


class DraftNode:
    """One draft node, a client; it works off its users' requests, some at a time."""

    def __init__(self, world: Surroundings, index: int, random: Random) -> None:
        settings = world.settings
        self.world = world
        self.index = index
        self.num_boots = 0
        self.num_faults = 0  # of its draft model
        self.booted_at = 0.0
        self.moved_at = 0.0  # a user of it got something new, or began to wait
        self.line = Line(world.clock, random, settings, index, world.trunk)
        self.frozen_until = 0.0
        self.generations: dict[bytes, Generation] = {}
        self.done: list[Generation] = []
        self.done_at = 0.0  # the last of them
        self._random = random
        self._watch = world.watch()
        self._cost = of_client(settings.draft_cost, index)
        self._acceptances: dict[bytes, Acceptance] = {}
        self._model = DraftModel(self._acceptances)
        self._num_drafting = 0
        self._num_started = 0
        self.joined = not settings.joins
        self._boot()
        self._tick()

    def _next_request(self) -> Request:
        settings, random = self.world.settings, self._random
        sizes = settings.sizes(self.index, self._num_started) if settings.sizes is not None else None
        self._num_started += 1
        return Request(
            session_id=random.randbytes(16),
            prompt=tuple(random.choices(range(VOCAB), k=sizes[0] if sizes else random.randint(1, settings.prompt_len))),
            sampling=Sampling(seed=random.getrandbits(40)),
            max_tokens=sizes[1] if sizes else random.randint(settings.min_tokens, settings.max_tokens),
            stop_ids=(STOP,) if random.random() < settings.stops else (),
            max_draft=settings.max_draft,
        )

    def join(self) -> None:
        """Its users come."""
        self.joined = True
        self._start_some()

    # faults

    def cut(self, seconds: float) -> None:
        self.line.cut_until = self.world.clock.now + seconds

    def freeze(self, seconds: float) -> None:
        self.frozen_until = self.world.clock.now + seconds

    def restart(self) -> None:
        """kill -9, and a new process at once."""
        for generation in self.generations.values():
            generation.cancelled = True
            self._over(generation)
        self.generations.clear()
        self.frozen_until = 0.0
        self._boot()

    def _boot(self) -> None:
        settings = self.world.settings
        self.num_boots += 1
        self.booted_at = self.world.clock.now
        boot_id = f"{self.index}-{self.num_boots}".rjust(8).encode()
        self.peer_id = b"peer-" + boot_id
        self.world.connect(self.peer_id, self)
        hello = Hello(VERSION, f"client-{self.index}", boot_id[-8:], "simulated", "simulated")
        link = VerifyLink.begin(hello, TIMEOUT_S, self._watch.now)
        self.core = DraftCore(link, settings.context_len, inf, settings.draft_ahead, least_odds=settings.least_odds)
        self._num_drafting = 0
        self._start_some()

    def _start_some(self) -> None:
        settings = self.world.settings
        while (
            self.joined and self._num_started < settings.num_sessions and len(self.generations) < settings.num_at_once
        ):
            request = self._next_request()
            self.moved_at = self.world.clock.now
            self._acceptances[request.session_id] = self._acceptance(self._num_started - 1)
            cancels = self._random.random() < settings.faults.cancel
            cancel_after = self._random.randrange(request.max_tokens) if cancels else None
            actions = self.core.begin(request, self._watch.now)
            session = self.core.sessions[request.session_id]
            self.generations[request.session_id] = Generation(session, cancel_after=cancel_after)
            self._carry_out(actions)

    def _acceptance(self, number: int) -> Acceptance:
        settings = self.world.settings
        if settings.acceptance is not None:
            return settings.acceptance(self.index, number)
        return Independent(of_client(settings.alpha, self.index))

    # events; a frozen process finds them waiting when it goes on

    def receive(self, peer_id: bytes, message: DownMessage) -> None:
        if peer_id != self.peer_id:
            return  # it was for the process before this one
        if self.world.clock.now < self.frozen_until:
            self.world.clock.at(self.frozen_until, self.receive, peer_id, message)
            return
        self._carry_out(self.core.receive(message, self._watch.now))

    def _tick(self) -> None:
        world = self.world
        world.clock.at(max(world.clock.now + world.settings.tick_s, self.frozen_until), self._tick)
        if world.clock.now >= self.frozen_until:
            self._carry_out(self.core.tick(self._watch.now))

    def _proposed(self, proposed: Proposed, num_boots: int) -> None:
        if num_boots != self.num_boots:
            return
        if self.world.clock.now < self.frozen_until:
            self.world.clock.at(self.frozen_until, self._proposed, proposed, num_boots)
            return
        self._num_drafting -= 1
        self._carry_out(self.core.proposed(proposed, self._watch.now))

    # actions

    def _carry_out(self, actions: Iterable[NodeAction]) -> None:
        """Users who have had enough leave when all of it is done, as they would of a process."""
        weary: list[bytes] = []
        for action in actions:
            match action:
                case Send():
                    self._send(action.message)
                case Propose():
                    self._propose(action)
                case Tell():
                    if not self._tell(action.session_id, action.item):
                        weary.append(action.session_id)
        for session_id in weary:
            self._end(session_id)

    def _send(self, message: UpMessage) -> None:
        self.world.send_up(self.line, self.peer_id, message)

    def _tell(self, session_id: bytes, item: Deliver | Finish | Fail) -> bool:
        """Whether the user wants more of it, if there is more."""
        generation = self.generations.get(session_id)
        if generation is None:
            return True
        match item:
            case Deliver():
                generation.delivered += item.tokens
                self.moved_at = self.world.clock.now
                return generation.cancel_after is None or len(generation.delivered) <= generation.cancel_after
            case Finish():
                generation.finish = item
            case Fail():
                generation.fail = item
        self._end(session_id)
        return True

    def _end(self, session_id: bytes) -> None:
        generation = self.generations.pop(session_id, None)
        if generation is None:
            return
        generation.cancelled = not (generation.finish or generation.fail)
        self._carry_out(self.core.forget(session_id))
        self._over(generation)
        self._start_some()

    def _over(self, generation: Generation) -> None:
        session_id = generation.session.request.session_id
        self.done_at = self.world.clock.now
        self.done.append(generation)
        self.world.request_over()
        self._model.forget(session_id)
        del self._acceptances[session_id]

    def _propose(self, wanted: Propose) -> None:
        """Steps of the draft model are shared by all proposals in the making, as many as there are at the beginning."""
        if wanted.request.session_id not in self._acceptances:
            return  # its user left meanwhile
        faults, random = self.world.settings.faults, self._random
        if faults.hang and random.random() < faults.hang:
            self.num_faults += 1
            return
        self._num_drafting += 1
        sharing, context_len = self._num_drafting, len(wanted.tokens)
        seconds = self._cost.round_s(self._model.num_new(wanted) + sharing - 1, sharing, sharing * context_len)
        seconds += wanted.length * self._cost.round_s(sharing, sharing, sharing * context_len)
        failed = bool(faults.no_draft) and random.random() < faults.no_draft
        self.num_faults += failed
        tokens = () if failed else self._model.propose(wanted)
        guess, tokens = (tokens[0], tokens[1:]) if wanted.ahead and tokens else (None, tokens)
        proposed = Proposed(wanted.request.session_id, wanted.epoch, wanted.round, tokens, None, seconds, guess)
        self.world.clock.after(seconds, self._proposed, proposed, self.num_boots)
