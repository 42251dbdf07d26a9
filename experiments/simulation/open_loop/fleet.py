"""Several services on one clock: requests come to a home replica, and go on to another that can promise them more.

Each replica is a world of its own, with draft nodes of its own: a request that is sent on is drafted for beside the
replica that it goes to. What is declined is sent on by `goodspeed.fleet.routing` (`fits`), which sees what each replica
told last, or to the next one by name (`ring`, SLOs-Serve's round robin). Where it has been sent on often enough, or
nobody else fits, it is best effort.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from experiments.simulation.arrivals import Arrival, Schedule, dealt_out
from experiments.simulation.clock import Clock
from experiments.simulation.nodes.users import UserText
from experiments.simulation.open_loop.service import LIMIT_S, Served, Service, core_of, roomy, served
from experiments.simulation.settings import Settings
from experiments.simulation.world import Unfinished, World
from goodspeed.fleet.replicas import Replica
from goodspeed.fleet.routing import elsewhere, may_take, with_one_more
from goodspeed.slo.feasible import Ask
from verify_node.core.core import VerifyCore
from verify_node.session.session import Session
from verify_node.slo.promises import Promises


@dataclass(frozen=True)
class Routing:
    """The ways of requests from replica to replica."""

    policy: str | None = "fits"  # or "ring"; None: they stay at home
    max_hops: int = 3
    hop_s: float = 0.02  # from a decision until the next replica knows of the request: a round trip
    told_every_s: float = 1.0  # so old may be what is known of the others


@dataclass(frozen=True)
class Text:
    """One request that is over."""

    client: int
    hops: int
    served: Served


@dataclass(frozen=True)
class Done:
    """Requests as a fleet served them."""

    services: list[Service]  # one for each replica
    texts: list[Text]


def serve_fleet(
    settings: Settings,
    arrivals: Sequence[Arrival],
    seed: int,
    num_replicas: int,
    homes: Sequence[int],
    routing: Routing,
    *,
    pool_tokens: int | None = None,
) -> Done:
    """The fleet of that seed, from the first request until the last text is over.

    homes: the replica of each client, who take the requests in turn. One replica is `serve` with as many clients.
    pool_tokens: of each replica, as `serve` has it.
    """
    fleet = Fleet(routing, len(arrivals))
    schedules = dealt_out(arrivals, len(homes))
    for number in range(num_replicas):
        clients = [client for client, home in enumerate(homes) if home == number]
        own: tuple[Schedule, ...] = tuple(schedules[client] for client in clients) or ((),)
        fleet.add(seed, replace(roomy(settings, arrivals, own, pool_tokens), num_clients=len(own)), clients)
    fleet.run()
    return fleet.done()


class Fleet:
    """The replicas, and where requests are that were sent on."""

    def __init__(self, routing: Routing, num_requests: int) -> None:
        self.clock = Clock()
        self.num_left = num_requests
        self._routing = routing
        self._members: list[Member] = []
        self._been: dict[bytes, list[int]] = {}  # the replicas that a request was sent on from
        self._clients: dict[bytes, int] = {}  # whose it is

    def add(self, seed: int, settings: Settings, clients: Sequence[int]) -> None:
        """One replica more. clients: whose home it is, one for each of its draft nodes; one node may be nobody's."""
        number = len(self._members)
        service = Service([], 0.0)
        world = OneOfMany(seed + number, settings, service.note, self.clock)
        world.on_request_over = self._over
        self._members.append(Member(number, world, service, clients, self._send_on))

    def run(self) -> None:
        if len(self._members) > 1 and self._routing.policy is not None:
            self._tell()
        while self.num_left:
            self.clock.step()
            if self.clock.now > LIMIT_S:
                raise Unfinished(f"{self.num_left} texts are not finished after {LIMIT_S} s")

    def _over(self) -> None:
        self.num_left -= 1

    def _tell(self) -> None:
        """Every replica learns what all of them have to do."""
        table = [member.replica(self.clock.now) for member in self._members]
        for member in self._members:
            member.table = list(table)
        self.clock.after(self._routing.told_every_s, self._tell)

    def _send_on(self, here: "Member", session: Session) -> bool:
        """True if the request, declined here, goes on elsewhere."""
        been = self._been.get(session.session_id, [])
        request = here.promises.request(session, self.clock.now + self._routing.hop_s)
        if len(been) >= self._routing.max_hops or self._routing.policy is None or not here.table or request is None:
            return False
        others = [one for number, one in enumerate(here.table) if number not in been]
        own = here.table[here.number]
        if self._routing.policy == "ring":
            found = next_in_ring(own, others, self.clock.now)
        else:
            found = elsewhere(own, others, request, self.clock.now, reason="slo")
        if found is None:
            return False
        there = next(member for member in self._members if member.name == found.name)
        here.note(there.number, request, self.clock.now)
        self._been[session.session_id] = [*been, here.number]
        self.clock.after(0.0, self._leave, here, there, session.session_id)
        return True

    def _leave(self, here: "Member", there: "Member", session_id: bytes) -> None:
        """Its draft node is told where to go on; it is asked for anew there."""
        draft = next(draft for draft in here.world.drafts if session_id in draft.generations)
        if session_id not in self._clients:
            self._clients[session_id] = here.clients[draft.index]
        self.clock.after(self._routing.hop_s, self._arrive, there, draft.give_up(session_id))

    def _arrive(self, there: "Member", generation: UserText) -> None:
        request = generation.session.request
        drafts = there.world.drafts
        drafts[self._clients[request.session_id] % len(drafts)].begin(request, generation.acceptance)

    def done(self) -> Done:
        """All requests as they were served, when all are over."""
        texts = []
        for member in self._members:
            for draft in member.world.drafts:
                for generation in draft.done:
                    key = generation.session.request.session_id
                    client = self._clients[key] if key in self._clients else member.clients[draft.index]
                    texts.append(Text(client, len(self._been.get(key, ())), served(generation)))
        return Done([member.done(self.clock.now) for member in self._members], texts)


def next_in_ring(own: Replica, others: Sequence[Replica], now: float) -> Replica | None:
    """Returns the next replica by name after `own` that may take a session, whatever its summary says."""
    able = [one for one in others if one.name != own.name and may_take(one, now)]
    return min(able, key=lambda one: (one.name <= own.name, one.name), default=None)


class Member:
    """One replica with its draft nodes."""

    def __init__(
        self,
        number: int,
        world: "OneOfMany",
        service: Service,
        clients: Sequence[int],
        send_on: "Callable[[Member, Session], bool]",
    ) -> None:
        self.number = number
        self.name = f"r{number:03}"
        self.world = world
        self.table: list[Replica] = []  # what it knows of all of them, in the order of their numbers
        self.clients = clients  # of each draft node
        self._service = service
        self._core = core_of(world)
        self._core.admission.promises = self.promises = SendingOn(self._core, partial(send_on, self))

    def replica(self, now: float) -> Replica:
        return Replica(self.name, f"tcp://{self.name}:1", None, self._core.load(now))

    def note(self, number: int, request: Ask, now: float) -> None:
        """Counts what it has sent to this one as what it has, until it tells again."""
        known = self.table[number]
        if known.load is not None:
            self.table[number] = Replica(known.name, known.endpoint, None, with_one_more(known.load, request, now))

    def done(self, now: float) -> Service:
        service = self._service
        service.seconds, service.num_preempted = now, self._core.counts.num_preempted
        service.texts = [served(generation) for draft in self.world.drafts for generation in draft.done]
        return service


class OneOfMany(World):
    """A world of which requests may be sent on to others."""

    on_request_over: Callable[[], None]

    def request_over(self) -> None:
        super().request_over()
        self.on_request_over()


class SendingOn(Promises):
    """The promises of a replica: whoever gets none is sent on, where that is possible, and is closed here."""

    def __init__(self, core: VerifyCore, send_on: Callable[[Session], bool]) -> None:
        super().__init__(core.promises.policy, core.rounds.cost, core.limits.max_round_tokens, core.pool)
        self._core = core
        self._send_on = send_on

    def decide(self, sessions: Mapping[bytes, Session], now: float) -> dict[bytes, bool]:
        stay = {}
        for key, promised in super().decide(sessions, now).items():
            session = sessions[key]
            if promised or session.promised is not None or not self._send_on(session):
                stay[key] = promised
            else:
                self._core.sessions.drop(self._core.sessions[key])
        return stay
