"""A draft node of the simulated world: carries out, on the world's clock, what `DraftCore` decides."""

from collections.abc import Iterable, Sequence
from math import inf
from random import Random

from draft_node.core.actions import (
    Away,
    Connect,
    Connected,
    Deliver,
    Disconnect,
    Fail,
    Finish,
    NodeAction,
    Reconnect,
    Send,
    Tell,
)
from draft_node.core.core import DraftCore
from draft_node.core.generation import Generation
from draft_node.core.link import VerifyLink
from draft_node.core.verify_nodes import Address
from experiments.simulation.network import Line
from experiments.simulation.nodes.connection import Connection
from experiments.simulation.nodes.surroundings import Surroundings
from experiments.simulation.nodes.users import Circumstances, Users, UserText
from experiments.simulation.settings import of_client
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.claims import claimed, shaped
from experiments.simulation.texts.draft_model import DraftModel
from experiments.simulation.texts.ngrams import make_ngrams
from experiments.simulation.texts.target import BrokenRule
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.slo.attainment import NO_OBJECTIVES, Times
from goodspeed.wire.handshake import VERSION, Hello
from goodspeed.wire.messages import DownMessage, UpMessage, Verdict

TIMEOUT_S = 3.0

MENDING_S = 5.0
"""A node whose texts would end lets users in for so long after its verify node was there."""

DRAINED_S = 1.0
"""The seconds from the end of its texts to the end of the process."""


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
        self.connection = self._make_connection(0, self._addresses()[0])
        self.connections = {0: self.connection}  # by the number of their link
        self.frozen_until = 0.0
        self.generations: dict[bytes, UserText] = {}
        self.done: list[UserText] = []
        self.done_at = 0.0  # the last of them
        self._random = random
        self._users = Users(world, index, random)
        self._watch = world.watch()
        self._acceptances: dict[bytes, Acceptance] = {}
        cost = of_client(settings.draft_cost, index)
        self._model = DraftModel(self._acceptances, cost, settings.parallel_decay)
        self._has_model = of_client(settings.has_model, index)
        self._making: dict[bytes, Propose] = {}  # the proposals in the making, by session
        self._on_core: dict[bytes, tuple[float, float]] = {}  # end and length of each session's newest proposal
        self._is_stopping = False
        self._away_at = 0.0  # the verify node has been away since then, if it is
        self.joined = not settings.joins
        self._boot()
        self._users.come(self._start_some)
        self._tick()

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
        connections = max(max(one.refused_until, one.struck_at) for one in self.connections.values())
        return max(self.frozen_until, self.booted_at, self.line.cut_until, connections)

    def _boot(self) -> None:
        settings = self.world.settings
        self.num_boots += 1
        self.booted_at = self._away_at = self.world.clock.now
        self._is_stopping = False
        self._begin_connections()
        boot_id = f"{self.index}-{self.num_boots}".rjust(8).encode()[-8:]
        model = "simulated" if self._has_model else ""
        hello = Hello(VERSION, f"client-{self.index}", boot_id, "simulated", model)
        link = VerifyLink.begin(hello, TIMEOUT_S, self._watch.now)
        self.core = DraftCore(
            link,
            settings.connect_timeout_s,
            addresses=self._addresses(),
            stays=True,
            ngrams=make_ngrams(
                of_client(settings.ngrams, self.index), self._acceptances, of_client(settings.ngram_rate, self.index)
            ),
            num_parallel=1 if self._has_model else None,
        )
        self._making.clear()
        self._start_some()

    # where its verify nodes are; here there is one

    def _addresses(self) -> Sequence[Address]:
        """The verify nodes of its options."""
        return (Address(""),)

    def _make_connection(self, link: int, address: Address) -> Connection:
        return Connection(self.world, self.receive, self.index, self.line, link)

    def _begin_connections(self) -> None:
        """The first connection of a new process."""
        self.connection.boot(self.num_boots)

    def _start_some(self, *, one_more: bool = False) -> None:
        """Starts requests up to the number served at once. A node that stops, or whose texts would wait, takes none."""
        while (
            self.joined
            and self._users.want_more
            and len(self.generations) < self._users.num_at_once
            and (one_more or not self._is_closed)
        ):
            self._start(self._users.next_request())
            one_more = False

    @property
    def _is_closed(self) -> bool:
        ends = self.core.connect_timeout_s < inf
        return self._is_stopping or (ends and self.core.away_s(self._watch.now) > MENDING_S)

    def _start(self, request: Generation) -> None:
        self.begin(request, self._users.acceptance(), self._users.cancel_after(request))

    def begin(self, request: Generation, acceptance: Acceptance, cancel_after: int | None = None) -> None:
        """Begins a text, of its own users or one that is sent on; its user has waited since it was asked for.

        cancel_after: tokens after which the user leaves.
        """
        self.moved_at = self.world.clock.now
        self._acceptances[request.session_id] = acceptance
        actions = self.core.begin(request, self._watch.now)
        session = self.core.sessions[request.session_id]
        self.generations[request.session_id] = UserText(
            session, acceptance, self.moved_at, Times(request.asked_at, request.slo or NO_OBJECTIVES), cancel_after
        )
        self._carry_out(actions)

    def give_up(self, session_id: bytes) -> UserText:
        """Lets go of a text of which its user has nothing yet: it is begun elsewhere. KeyError if it has none such."""
        generation = self.generations.pop(session_id)
        self._model.forget(session_id)
        self._making.pop(session_id, None)
        del self._acceptances[session_id]
        self._carry_out(self.core.forget(session_id, self._watch.now))
        return generation

    # events; a frozen process finds them waiting when it goes on

    def receive(self, link: int, peer_id: bytes, message: DownMessage) -> None:
        connection = self.connections.get(link)
        if connection is None or peer_id != connection.peer_id:
            return  # it was for the process before this one
        if self.world.clock.now < self.frozen_until:
            self.world.clock.at(self.frozen_until, self.receive, link, peer_id, message)
            return
        core = self.world.settings.draft_core
        if core is not None and isinstance(message, Verdict):
            self.world.clock.at(self.world.clock.on_core(core.verdict_s, is_short=True), self._hear, link, message)
        else:
            self._hear(link, message)

    def _hear(self, link: int, message: DownMessage) -> None:
        self._carry_out(self.core.receive(message, self._watch.now, link))

    def _tick(self) -> None:
        world = self.world
        world.clock.at(max(world.clock.now + world.settings.tick_s, self.frozen_until), self._tick)
        if world.clock.now < self.frozen_until:
            return
        for link, connection in list(self.connections.items()):
            if connection.is_refused:
                self._carry_out(self.core.turned_away("simulated", self._watch.now, link))
            if connection.found_broken():
                self._carry_out(self.core.broke(self._watch.now, link))
        self._carry_out(self.core.tick(self._watch.now))

    def _proposed(self, proposed: Proposed, num_boots: int) -> None:
        if num_boots != self.num_boots:
            return
        if self.world.clock.now < self.frozen_until:
            self.world.clock.at(self.frozen_until, self._proposed, proposed, num_boots)
            return
        wanted = self._making.get(proposed.session_id)
        if wanted is None or (wanted.epoch, wanted.round) != (proposed.epoch, proposed.round):
            return  # a newer one replaced it
        del self._making[proposed.session_id]
        self._carry_out(self.core.proposed(proposed, self._watch.now))

    # actions

    def _carry_out(self, actions: Iterable[NodeAction]) -> None:
        """Carries out actions in order; only then do users leave who cancel, as they would with a real process."""
        weary: list[bytes] = []
        numbers, is_back = {link: one.number for link, one in self.connections.items()}, False
        for action in actions:
            match action:
                case Send(link=link) if link in self.connections and numbers[link] == self.connections[link].number:
                    self._send(action.message, link)  # else it was for one that is dropped
                case Propose():
                    self._propose(action)
                case Tell():
                    if not self._tell(action.session_id, action.item):
                        weary.append(action.session_id)
                case Reconnect() if self.world.settings.faults.connections:
                    self.connections[action.link].renew()
                    numbers[action.link] = self.connections[action.link].number
                case Connect():
                    self.connections[action.link] = self._make_connection(action.link, action.address)
                    self.connections[action.link].boot(self.num_boots)
                    numbers[action.link] = 0
                case Disconnect():
                    self.connections.pop(action.link).end()
                case Connected():
                    is_back = True
                case Away():
                    self._away_at = self.world.clock.now
        for session_id in weary:
            self._end(session_id)
        if is_back:
            self._start_some()

    def _send(self, message: UpMessage, link: int) -> None:
        busy = self.world.settings.faults.busy
        if busy and self._random.random() < busy:
            self.num_faults += 1
            self.connections[link].strike()
            self._carry_out(self.core.send_failed(self._watch.now, link))
        else:
            message = claimed(message, of_client(self.world.settings.claims, self.index))
            message = shaped(message, of_client(self.world.settings.trees, self.index))
            self.connections[link].send(message)

    def _tell(self, session_id: bytes, item: Deliver | Finish | Fail) -> bool:
        """True if the user wants more of it, if there is more."""
        generation = self.generations.get(session_id)
        if generation is None:
            return True
        match item:
            case Deliver():
                generation.delivered += item.tokens
                generation.times.delivered(len(item.tokens), self.world.clock.now)
                self.moved_at = generation.moved_at = self.world.clock.now
                return generation.cancel_after is None or len(generation.delivered) <= generation.cancel_after
            case Finish():
                generation.finish = item
            case Fail():
                generation.fail = item
        away_s = 0.0 if self.core.links.is_anybody_there else self.world.clock.now - self._away_at
        generation.ended = Circumstances(self._is_stopping, away_s)
        self._end(session_id)
        return True

    def _end(self, session_id: bytes) -> None:
        generation = self.generations.pop(session_id, None)
        if generation is None:
            return
        generation.cancelled = not (generation.finish or generation.fail)
        self._carry_out(self.core.forget(session_id, self._watch.now))
        self._over(generation)
        self._start_some()

    def _over(self, generation: UserText) -> None:
        session_id = generation.session.request.session_id
        self.done_at = self.world.clock.now
        self.done.append(generation)
        self._on_core.pop(session_id, None)
        self.world.request_over()
        self._model.forget(session_id)
        self._making.pop(session_id, None)
        del self._acceptances[session_id]

    def _propose(self, wanted: Propose) -> None:
        if not self._has_model:
            raise BrokenRule("a proposal is asked for of a node without a draft model")
        if wanted.request.session_id not in self._acceptances:
            return  # its user left meanwhile
        faults, random = self.world.settings.faults, self._random
        if faults.hang and random.random() < faults.hang:
            self.num_faults += 1
            return
        self._making[wanted.request.session_id] = wanted
        failed = bool(faults.no_draft) and random.random() < faults.no_draft
        self.num_faults += failed
        proposed, seconds = self._model.answer(wanted, len(self._making), failed=failed)
        clock = self.world.clock
        if self.world.settings.draft_core is None:
            clock.after(seconds, self._proposed, proposed, self.num_boots)
            return
        ends, worked_s = self._on_core.get(proposed.session_id, (0.0, 0.0))
        clock.free_core(min(worked_s, max(0.0, ends - clock.now)))  # what it replaces is not finished
        ends = clock.on_core(seconds)
        self._on_core[proposed.session_id] = ends, seconds
        clock.at(ends, self._proposed, proposed, self.num_boots)
