"""A draft node of the simulated world: carries out, on the world's clock, what `DraftCore` decides."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from random import Random

from draft_node.core.actions import (
    Away,
    Connected,
    Deliver,
    Fail,
    Finish,
    NodeAction,
    Propose,
    Proposed,
    Reconnect,
    Request,
    Send,
    Tell,
)
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

MENDING_S = 5.0
"""A node whose texts would end lets users in for so long after its verify node was there."""

DRAINED_S = 1.0
"""The seconds from the end of its texts to the end of the process."""


@dataclass(slots=True)
class Generation:
    """One request and what its user got."""

    session: Session
    acceptance: Acceptance
    moved_at: float  # it got something new, or began
    cancel_after: int | None = None  # tokens
    delivered: list[int] = field(default_factory=list)
    local: list[bool] = field(default_factory=list)  # of each delivered token: whether the draft model wrote it alone
    finish: Finish | None = None
    fail: Fail | None = None
    cancelled: bool = False
    ended: "Circumstances | None" = None  # set with `finish` or `fail`


@dataclass(frozen=True, slots=True)
class Circumstances:
    """How things stood when a user was told the end of a text."""

    was_local: bool  # the draft model wrote alone
    context_len: int  # of the target, or of the draft model as long as no target was seen
    was_stopping: bool  # the draft node stopped in good order
    away_s: float  # for how long its verify node had been away
    idle_s: float  # since the last token


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
        self.refused_until = 0.0  # no connection of it is taken
        self.struck_at = 0.0  # its connection was lost
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
        self.peer_id = b""
        self._num_connections = 0  # of this process
        self._is_refused = self._is_broken = False  # its connection; it learns of that at the next tick
        self._is_stopping = False
        self._away_at = 0.0  # the verify node has been away since then, if it is
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

    def leave(self) -> None:
        """Stops in good order, and another process takes its place."""
        if self.world.clock.now >= self.frozen_until:
            self._is_stopping = True
            self._carry_out(self.core.leave(Fail("closed", "simulated")))
            self._boot()

    def drain(self) -> None:
        """Ends what its users wait for; one more comes, and then it leaves."""
        if self.world.clock.now >= self.frozen_until and not self._is_stopping:
            self._is_stopping = True
            self._carry_out(self.core.drain(Fail("draining", "simulated")))
            self._start_some(one_more=True)
            self.world.clock.after(DRAINED_S, self._drained, self.num_boots)

    def _drained(self, num_boots: int) -> None:
        if num_boots != self.num_boots:
            return
        if self.world.clock.now < self.frozen_until:
            self.world.clock.at(self.frozen_until, self._drained, num_boots)
        else:
            self.leave()

    @property
    def struck_until(self) -> float:
        """The end of the last blow to this node."""
        line = max(self.line.cut_until, self.refused_until, self.struck_at)
        return max(self.frozen_until, self.booted_at, line)

    def lose_connection(self) -> None:
        """What is on it is lost. The socket makes another by itself, of which the verify node knows nothing."""
        self.struck_at = self.world.clock.now
        self._connect()
        self._is_broken = True

    def turn_away(self, seconds: float) -> None:
        """The connection is lost, and no other is taken for so long."""
        self.refused_until = self.world.clock.now + seconds
        self._connect()

    def _connect(self) -> None:
        """Makes another connection, with a name of its own."""
        self.world.disconnect(self.peer_id)
        self._num_connections += 1
        self.peer_id = b"peer-%d-%d/%d" % (self.index, self.num_boots, self._num_connections)
        self._is_refused = self.world.clock.now < self.refused_until
        if not self._is_refused:
            self.world.connect(self.peer_id, self)

    def _boot(self) -> None:
        settings = self.world.settings
        self.num_boots += 1
        self.booted_at = self._away_at = self.world.clock.now
        self._num_connections = 0
        self._is_broken = self._is_stopping = False
        boot_id = f"{self.index}-{self.num_boots}".rjust(8).encode()
        self.peer_id = b"peer-" + boot_id
        self._is_refused = self.booted_at < self.refused_until
        if not self._is_refused:
            self.world.connect(self.peer_id, self)
        hello = Hello(VERSION, f"client-{self.index}", boot_id[-8:], "simulated", "simulated")
        link = VerifyLink.begin(hello, TIMEOUT_S, self._watch.now)
        self.core = DraftCore(
            link,
            settings.draft_context_len,
            settings.connect_timeout_s,
            settings.draft_ahead,
            stays=not settings.falls_back,
            falls_back=settings.falls_back,
            least_ahead_rate=settings.least_ahead_rate,
        )
        self._num_drafting = 0
        self._start_some()

    def _start_some(self, *, one_more: bool = False) -> None:
        """Starts requests up to the number served at once. A node that stops, or whose texts would wait, takes none."""
        settings = self.world.settings
        while (
            self.joined
            and self._num_started < settings.num_sessions
            and len(self.generations) < settings.num_at_once
            and (one_more or not self._is_closed)
        ):
            self._start(self._next_request())
            one_more = False

    @property
    def _is_closed(self) -> bool:
        ends = self.core.connect_timeout_s < inf and not self.core.falls_back
        return self._is_stopping or (ends and self.core.link.away_s(self._watch.now) > MENDING_S)

    def _start(self, request: Request) -> None:
        random = self._random
        self.moved_at = self.world.clock.now
        acceptance = self._acceptances[request.session_id] = self._acceptance(self._num_started - 1)
        cancels = random.random() < self.world.settings.faults.cancel
        cancel_after = random.randrange(request.max_tokens) if cancels else None
        actions = self.core.begin(request, self._watch.now)
        session = self.core.sessions[request.session_id]
        self.generations[request.session_id] = Generation(session, acceptance, self.moved_at, cancel_after)
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
        if world.clock.now < self.frozen_until:
            return
        if self._is_refused:
            self._carry_out(self.core.turned_away("simulated", self._watch.now))
        if self._is_broken:
            self._is_broken = False
            self._carry_out(self.core.broke(self._watch.now))
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
        """Carries out actions in order; only then do users leave who cancel, as they would with a real process."""
        weary: list[bytes] = []
        connection, is_back = self._num_connections, False
        for action in actions:
            match action:
                case Send() if connection == self._num_connections:  # else it was for one that is dropped
                    self._send(action.message)
                case Propose():
                    self._propose(action)
                case Tell():
                    if not self._tell(action.session_id, action.item):
                        weary.append(action.session_id)
                case Reconnect() if self.world.settings.faults.connections:
                    self._connect()
                    connection = self._num_connections
                case Connected():
                    is_back = True
                case Away():
                    self._away_at = self.world.clock.now
        for session_id in weary:
            self._end(session_id)
        if is_back:
            self._start_some()

    def _send(self, message: UpMessage) -> None:
        busy = self.world.settings.faults.busy
        if busy and self._random.random() < busy:
            self.num_faults += 1
            self.struck_at = self.world.clock.now
            self._carry_out(self.core.send_failed(self._watch.now))
        else:
            self.world.send_up(self.line, self.peer_id, message)

    def _tell(self, session_id: bytes, item: Deliver | Finish | Fail) -> bool:
        """Whether the user wants more of it, if there is more."""
        generation = self.generations.get(session_id)
        if generation is None:
            return True
        match item:
            case Deliver():
                generation.delivered += item.tokens
                generation.local += [item.local] * len(item.tokens)
                self.moved_at = generation.moved_at = self.world.clock.now
                return generation.cancel_after is None or len(generation.delivered) <= generation.cancel_after
            case Finish():
                generation.finish = item
            case Fail():
                generation.fail = item
        now = self.world.clock.now
        away_s = 0.0 if self.core.link.connected else now - self._away_at
        welcome, core = self.core.link.welcome, self.core
        context_len = core.context_len if welcome is None else welcome.context_len
        idle_s = now - generation.moved_at
        generation.ended = Circumstances(core.is_local, context_len, self._is_stopping, away_s, idle_s)
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
