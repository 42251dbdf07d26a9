"""A draft node of a simulated fleet: which verify nodes it knows, and its lines to each of them.

It also counts where its sessions are sent.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol

from draft_node.core.actions import Deliver, Tell
from draft_node.core.verify_nodes import Address
from experiments.simulation.fleet.table import endpoint
from experiments.simulation.network import Line
from experiments.simulation.nodes.connection import Connection
from experiments.simulation.nodes.draft import DraftNode
from experiments.simulation.nodes.surroundings import Surroundings
from experiments.simulation.nodes.verify import VerifyNode
from experiments.simulation.settings import of_client
from experiments.simulation.texts.target import BrokenRule
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.messages import DownMessage, Redirect

NOWHERE = "tcp://nowhere:1"


class FleetSurroundings(Surroundings, Protocol):
    """A world with several verify nodes, as its draft nodes see it."""

    @property
    def verifies(self) -> list[VerifyNode]: ...
    @property
    def num_faults_in_all(self) -> int: ...
    def place(self, address: str) -> Surroundings:
        """Returns the end of the network at this endpoint."""
        ...

    def number_of(self, place: Surroundings) -> int: ...
    def is_served(self, draft: "FleetDraft", target: str) -> bool:
        """True if the draft node could have had this target all the while, and knew where."""
        ...


class FleetDraft(DraftNode):
    """A draft node with links to several verify nodes."""

    def __init__(self, world: FleetSurroundings, index: int, random: Random) -> None:
        self.fleet = world
        self.lines: dict[str, Line] = {}  # by the names of verify nodes
        self.num_redirects = self.num_moves = 0
        self.most_redirects = 0  # of a session between two of its tokens, above what faults explain
        self.ended_early: list[bytes] = []  # by their target, though a verify node with that was in reach
        self._redirects: dict[bytes, int] = {}  # of each session, since its last token
        self._faults: dict[bytes, int] = {}  # of the world at that time
        self._placed: dict[bytes, int] = {}  # the verify node that gave each session its last token
        self._line_random = random
        self._options = list(map(Address, self._endpoints(world, index, random)))
        super().__init__(world, index, random)

    def _endpoints(self, world: FleetSurroundings, index: int, random: Random) -> list[str]:
        """The verify nodes of its options: whoever starts a process names none that is known to be gone."""
        numbers = [number for number, node in enumerate(world.verifies) if not node.is_gone]
        random.shuffle(numbers)
        match of_client(world.settings.fleet.knows, index):
            case "all":
                return [endpoint(number) for number in numbers]
            case "one":
                return [endpoint(numbers[0])]
            case "twice":
                return [endpoint(numbers[0]), endpoint(numbers[0], 2), *(endpoint(number) for number in numbers[1:2])]
            case "nowhere":
                return [NOWHERE, endpoint(numbers[0])]

    def _addresses(self) -> Sequence[Address]:
        return self._options

    def _make_connection(self, link: int, address: Address) -> Connection:
        place = self.fleet.place(address.endpoint)
        return Connection(place, self.receive, self.index, self.line_to(address.endpoint), link)

    def _begin_connections(self) -> None:
        for connection in self.connections.values():
            connection.end()
        if self.num_boots > 1:
            self._options = list(map(Address, self._endpoints(self.fleet, self.index, self._line_random)))
        self.connection = self._make_connection(0, self._options[0])
        self.connection.boot(self.num_boots)
        self.connections = {0: self.connection}

    def line_to(self, address: str) -> Line:
        """Its line to the verify node there; it is the same whenever it connects."""
        name = address.rsplit(":", 1)[0]
        if name not in self.lines:
            self.lines[name] = Line(self.world.clock, self._line_random, self.world.settings, self.index, None)
        return self.lines[name]

    # faults

    def cut(self, seconds: float) -> None:
        """None of its lines carries anything."""
        self.line.cut_until = self.world.clock.now + seconds
        for line in self.lines.values():
            line.cut_until = max(line.cut_until, self.line.cut_until)

    def lose_connections(self, place: object) -> None:
        """A verify node ends, and its connections with it."""
        for connection in self.connections.values():
            if connection.place is place:
                connection.lose()

    def known_addresses(self) -> list[Address]:
        return self.core.links.verify_nodes.addresses()

    @property
    def struck_until(self) -> float:
        return max(super().struck_until, *(line.cut_until for line in self.lines.values()))

    # what is counted

    def _end(self, session_id: bytes) -> None:
        generation = self.generations.get(session_id)
        fail = generation.fail if generation is not None else None
        target = self.core.sessions[session_id].target if fail is not None else None
        if fail is not None and fail.code == "target_changed" and self.fleet.is_served(self, target or ""):
            self.ended_early.append(session_id)
        super()._end(session_id)

    def _hear(self, link: int, message: DownMessage) -> None:
        number = self.core.counts.num_redirected
        actions = self.core.receive(message, self._watch.now, link)
        if isinstance(message, Redirect) and self.core.counts.num_redirected > number:
            self._was_sent(message.session_id)
        for action in actions:
            if isinstance(action, Tell) and isinstance(action.item, Deliver):
                self._was_told(action.session_id, link)
        self._carry_out(actions)

    def _was_sent(self, session_id: bytes) -> None:
        self.num_redirects += 1
        faults = self.fleet.num_faults_in_all
        number = self._redirects[session_id] = self._redirects.get(session_id, 0) + 1
        since = faults - self._faults.setdefault(session_id, faults)
        self.most_redirects = max(self.most_redirects, number - since - MAX_HOPS)

    def _was_told(self, session_id: bytes, link: int) -> None:
        """Only the verify node that the session is with now may give it tokens."""
        if self.core.links.on(session_id) != link:
            raise BrokenRule(f"link {link} gave tokens to a session on link {self.core.links.on(session_id)}")
        place = self.fleet.number_of(self.connections[link].place)
        self.num_moves += self._placed.get(session_id, place) != place
        self._placed[session_id] = place
        self._redirects.pop(session_id, None)
        self._faults.pop(session_id, None)
