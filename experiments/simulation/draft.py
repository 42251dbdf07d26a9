"""What `draft_node/daemon.py` does, on the world's clock, with a simulated draft model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from draft_node.core.actions import Deliver, Fail, Finish, Propose, Proposed, Request, Send
from draft_node.core.link import Command, VerifyLink
from draft_node.core.odds import Odds
from draft_node.core.session import Session
from experiments.simulation.acceptance import Acceptance, Independent
from experiments.simulation.models import DraftModel
from experiments.simulation.network import Line
from experiments.simulation.settings import of_client
from experiments.simulation.text import STOP, VOCAB
from goodspeed.wire.messages import VERSION, DownMessage, Heartbeat, Hello, Refusal, Sampling, Verdict

if TYPE_CHECKING:
    from experiments.simulation.world import World

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

    def __init__(self, world: World, index: int, random: Random) -> None:
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
        self.line.cut_until = self.world.now + seconds

    def freeze(self, seconds: float) -> None:
        self.frozen_until = self.world.now + seconds

    def restart(self) -> None:
        """kill -9, and a new process at once."""
        for generation in self.generations.values():
            generation.cancelled = True
            self._over(generation)
        self.generations.clear()
        self.frozen_until = 0.0
        self._boot()

    def _boot(self) -> None:
        self.num_boots += 1
        self.booted_at = self.world.now
        boot_id = f"{self.index}-{self.num_boots}".rjust(8).encode()
        self.peer_id = b"peer-" + boot_id
        self.world.peers[self.peer_id] = self
        hello = Hello(VERSION, f"client-{self.index}", boot_id[-8:], "simulated", "simulated")
        self.link = VerifyLink.begin(hello, TIMEOUT_S, self._watch.now)
        self._num_drafting = 0
        self._start_some()

    def _start_some(self) -> None:
        settings = self.world.settings
        while (
            self.joined and self._num_started < settings.num_sessions and len(self.generations) < settings.num_at_once
        ):
            request = self._next_request()
            self.moved_at = self.world.now
            self._acceptances[request.session_id] = self._acceptance(self._num_started - 1)
            generation = Generation(Session(request, settings.draft_ahead, Odds(least=settings.least_odds)))
            if self._random.random() < settings.faults.cancel:
                generation.cancel_after = self._random.randrange(request.max_tokens)
            self.generations[request.session_id] = generation
            if self.link.connected:
                self._open(generation)

    def _acceptance(self, number: int) -> Acceptance:
        settings = self.world.settings
        if settings.acceptance is not None:
            return settings.acceptance(self.index, number)
        return Independent(of_client(settings.alpha, self.index))

    def _open(self, generation: Generation) -> None:
        welcome = self.link.welcome
        if welcome is not None:
            now = self._watch.now
            self._act(generation, generation.session.connect(now, welcome.target_fingerprint, welcome.context_len))

    # events; a frozen process finds them waiting when it goes on

    def receive(self, peer_id: bytes, message: DownMessage) -> None:
        if peer_id != self.peer_id:
            return  # it was for the process before this one
        if self.world.now < self.frozen_until:
            self.world.clock.at(self.frozen_until, self.receive, peer_id, message)
            return
        now = self._watch.now
        self._obey(self.link.heard(message, now))
        if isinstance(message, (Verdict, Refusal)) and message.session_id in self.generations:
            generation = self.generations[message.session_id]
            self._act(generation, generation.session.receive(message, now))

    def _tick(self) -> None:
        world = self.world
        world.clock.at(max(world.now + world.settings.tick_s, self.frozen_until), self._tick)
        if world.now >= self.frozen_until:
            now = self._watch.now
            self._obey(self.link.tick(now))
            for generation in list(self.generations.values()):
                if now >= generation.session.resend_at:
                    self._act(generation, generation.session.tick(now))

    def _proposed(self, proposed: Proposed, num_boots: int) -> None:
        if num_boots != self.num_boots:
            return
        if self.world.now < self.frozen_until:
            self.world.clock.at(self.frozen_until, self._proposed, proposed, num_boots)
            return
        self._num_drafting -= 1
        if proposed.session_id in self.generations:
            generation = self.generations[proposed.session_id]
            self._act(generation, generation.session.proposed(proposed, self._watch.now))

    # actions

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Command.SAY_HELLO:
                    self._send(self.link.hello)
                case Command.BEAT:
                    self._send(Heartbeat(self.link.hello.boot_id))
                case Command.OPEN_SESSIONS:
                    for generation in list(self.generations.values()):
                        self._open(generation)
                case Command.DROP_SESSIONS:
                    for generation in self.generations.values():
                        generation.session.disconnect()
                case Command.RECONNECT:
                    pass

    def _act(self, generation: Generation, actions: Iterable[Any]) -> None:
        for action in actions:
            match action:
                case Send():
                    self._send(action.message)
                case Propose():
                    self._propose(action)
                case Deliver():
                    generation.delivered += action.tokens
                    self.moved_at = self.world.now
                case Finish():
                    generation.finish = action
                case Fail():
                    generation.fail = action
        wanted = generation.cancel_after is None or len(generation.delivered) <= generation.cancel_after
        if generation.finish or generation.fail or not wanted:
            self._end(generation)

    def _send(self, message: Any) -> None:
        self.line.up(message, self.world.verify.receive, self.peer_id)

    def _end(self, generation: Generation) -> None:
        session_id = generation.session.request.session_id
        if self.generations.pop(session_id, None) is None:
            return
        generation.cancelled = not (generation.finish or generation.fail)
        for action in generation.session.cancel():
            if isinstance(action, Send):
                self._send(action.message)
        self._over(generation)
        self._start_some()

    def _over(self, generation: Generation) -> None:
        session_id = generation.session.request.session_id
        self.done_at = self.world.now
        self.done.append(generation)
        self.world.num_done += 1
        self._model.forget(session_id)
        del self._acceptances[session_id]

    def _propose(self, wanted: Propose) -> None:
        """Steps of the draft model are shared by all proposals in the making, as many as there are at the beginning."""
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
