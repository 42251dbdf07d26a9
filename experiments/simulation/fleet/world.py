"""A world with several verify nodes of one fleet, which know of each other by a table."""

from collections.abc import Callable
from math import inf

from experiments.simulation.checking.allowed_wait import patience_s
from experiments.simulation.clock import Watch
from experiments.simulation.fleet.draft import FleetDraft
from experiments.simulation.fleet.table import Table, endpoint
from experiments.simulation.nodes.draft import DraftNode
from experiments.simulation.nodes.place import Place
from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.nodes.verify import VerifyNode
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.world import World

TOLD_EVERY_S = 1.0
SERVED_S = 12.0
"""A draft node finds a verify node that it knows, and that is there, after so long at most."""

MENDED_EVERY_S = 5.0
"""Draft nodes whose verify nodes are all gone for good are started again, with others, after so long at most."""


class OtherPlace(Place):
    """The place of a verify node that is not the first; all but its connections is the world's."""

    def __init__(self, world: "FleetWorld") -> None:
        super().__init__()
        self.world = world
        self.settings = world.settings
        self.clock = world.clock
        self.trunk = world.trunk
        self.on_round: Callable[[Finished], None] | None = world.on_round

    def watch(self) -> Watch:
        return self.world.watch()

    def end_connections(self, *, in_good_order: bool) -> None:
        self.world.lose_connections(self, in_good_order=in_good_order)

    def acceptance(self, session_id: bytes) -> Acceptance | None:
        return self.world.acceptance(session_id)

    def request_over(self) -> None:
        self.world.request_over()

    def join_next(self, num_rounds: int) -> None:
        self.world.join_next(num_rounds)


class FleetWorld(World):
    """The first verify node is that of the world with one; faults of verify nodes befall any of them."""

    def __init__(self, seed: int, settings: Settings, on_round: Callable[[Finished], None] | None = None) -> None:
        self.num_deaths = 0
        self.fleet_drafts: list[FleetDraft] = []
        self._others: list[OtherPlace] = []
        super().__init__(seed, settings, on_round)

    def _make_drafts(self) -> list[DraftNode]:
        """The other verify nodes are made before the draft nodes, which may know them."""
        for number in range(1, self.settings.num_verifies):
            place = OtherPlace(self)
            place.verify = VerifyNode(place, self._fork(), number)
            self._others.append(place)
        self._nowhere = OtherPlace(self)
        self._nowhere.verify = VerifyNode(self._nowhere, self._fork(), self.settings.num_verifies)
        self._nowhere.verify.restart(inf)
        fleet = self.settings.fleet
        for node in self.verifies[1:]:
            if self.random.random() < fleet.late:
                node.restart(self.random.expovariate(1 / fleet.away_s))
        self.table = Table(self.settings, self._fork())
        self.fleet_drafts = [FleetDraft(self, index, self._fork()) for index in range(self.settings.num_clients)]
        self._tell()
        self._mend()
        return list(self.fleet_drafts)

    @property
    def places(self) -> list[Place]:
        return [self, *self._others]

    @property
    def verifies(self) -> list[VerifyNode]:
        return [place.verify for place in self.places]

    @property
    def num_rounds(self) -> int:
        return sum(node.num_rounds for node in self.verifies)

    @property
    def num_faults_in_all(self) -> int:
        num_drafts = sum(draft.num_faults for draft in self.fleet_drafts)
        num_lines = sum(line.num_faults for draft in self.fleet_drafts for line in draft.lines.values())
        return self.num_faults + num_drafts + num_lines + sum(node.failures.num_faults for node in self.verifies)

    def place(self, address: str) -> "FleetWorld | OtherPlace":
        """Returns where somebody who connects to this endpoint ends up; a node may have several."""
        name = address.rsplit(":", 1)[0]
        if not name.startswith("tcp://verify-"):
            return self._nowhere
        number = int(name.removeprefix("tcp://verify-"))
        return self._others[number - 1] if number else self

    def is_served(self, draft: FleetDraft, target: str) -> bool:
        """True if a draft node could have had this target all the while, and knew where."""
        faults = self.settings.faults
        lost = faults.lose or faults.busy or faults.hang or faults.break_every_s or faults.turn_away_every_s
        patient_s = SERVED_S + 8 * (max(self.settings.latency_s) + faults.jitter_s)
        since = self.now - (patience_s(self.settings) if lost else patient_s)
        if max(self.table.wrong_at, draft.frozen_until, draft.booted_at) > since:
            return False
        return any(self._serves(draft, address.endpoint, target, since) for address in draft.known_addresses())

    def _serves(self, draft: FleetDraft, address: str, target: str, since: float) -> bool:
        node = self.place(address).verify
        if node.core is None or node.core.draining or node.core.welcome.target_fingerprint != target:
            return False
        return max(node.booted_at, draft.line_to(address).cut_until) < since

    def number_of(self, place: object) -> int:
        return next((number for number, one in enumerate(self.places) if one is place), -1)

    def end_connections(self, *, in_good_order: bool) -> None:
        self.lose_connections(self, in_good_order=in_good_order)

    def lose_connections(self, place: object, *, in_good_order: bool) -> None:
        """The verify node there ends; its last words arrive, if it could say any."""
        last_words_s = max(self.settings.latency_s) + self.settings.faults.jitter_s
        for draft in self.fleet_drafts:
            if in_good_order:
                self.clock.after(last_words_s, draft.lose_connections, place)
            else:
                draft.lose_connections(place)

    def _tell(self) -> None:
        self.table.collect(self.verifies, self.now)
        self.table.tell(self.verifies, self.now)
        self.clock.after(TOLD_EVERY_S, self._tell)

    def _mend(self) -> None:
        """Somebody starts draft nodes again which know nobody but who is gone for good."""
        for draft in self.fleet_drafts:
            if all(self.place(address.endpoint).verify.is_gone for address in draft.known_addresses()):
                draft.restart()
        self.clock.after(MENDED_EVERY_S, self._mend)

    # faults

    def _plan_faults(self) -> None:
        super()._plan_faults()
        fleet = self.settings.fleet
        self._every(fleet.part_every_s, self._part)
        self._every(fleet.gone_every_s, self._lose_one)
        self._every(fleet.roll_every_s, lambda: self._roll(0))
        self._every(fleet.freeze_table_every_s, self._freeze_table)

    def _some_verify(self) -> VerifyNode:
        self.num_deaths += 1
        return self.random.choice(self.verifies)

    def _part(self) -> None:
        draft = self.random.choice(self.fleet_drafts)
        line = draft.line_to(endpoint(self.random.randrange(self.settings.num_verifies)))
        line.cut_until = max(line.cut_until, self.now + self._pause())

    def _lose_one(self) -> None:
        """A verify node goes for good, unless it is the last that is there."""
        there = [node for node in self.verifies if node.core is not None]
        if len(there) > 1:
            self.num_deaths += 1
            self.random.choice(there).restart(inf)

    def _roll(self, number: int) -> None:
        if number < self.settings.num_verifies and self.num_left:
            self.num_deaths += 1
            self.num_faults += 1
            self.verifies[number].stop(self.random.random() * self.settings.faults.down_s)
            self.clock.after(2 * self.settings.faults.down_s + 1.0, self._roll, number + 1)

    def _freeze_table(self) -> None:
        self.table.frozen_until = max(self.table.frozen_until, self.now + self._pause())
