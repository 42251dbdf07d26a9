"""One verify node and several draft nodes on a virtual clock, with a network between them that may be bad."""

from collections.abc import Callable
from math import inf
from random import Random

from experiments.simulation.clock import Clock, Watch
from experiments.simulation.network import Trunk
from experiments.simulation.nodes.draft import DraftNode
from experiments.simulation.nodes.place import Place
from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.nodes.verify import VerifyNode
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Acceptance


class Unfinished(AssertionError):
    """A world that stands still, or is too slow."""


class World(Place):
    """Everything in it follows from the seed: the same seed gives the same rounds, bit for bit."""

    def __init__(
        self,
        seed: int,
        settings: Settings | None = None,
        on_round: Callable[[Finished], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """clock: one that it shares with other worlds; None: its own."""
        super().__init__()
        self.seed = seed
        self.settings = settings or Settings()
        self.random = Random(seed)
        self.clock = Clock() if clock is None else clock
        self.on_round = on_round
        self.num_faults = 0  # that befell nodes
        self.num_done = 0  # requests
        self._num_requests = self.settings.num_requests
        bytes_per_s = self.settings.verify_bytes_per_s
        self.trunk = Trunk(self.clock, bytes_per_s) if bytes_per_s < inf else None
        self.verify = VerifyNode(self, self._fork())
        self.drafts = self._make_drafts()
        self.join_next(0)
        self._plan_faults()

    def _make_drafts(self) -> list[DraftNode]:
        return [DraftNode(self, index, self._fork()) for index in range(self.settings.num_clients)]

    @property
    def places(self) -> list[Place]:
        """The network's ends, one for each verify node."""
        return [self]

    @property
    def num_left(self) -> int:
        """Users' requests that are not over."""
        return self._num_requests - self.num_done

    @property
    def now(self) -> float:
        return self.clock.now

    @property
    def num_faults_in_all(self) -> int:
        """Faults of the world, of the lines and of the models together."""
        num_drafts = sum(draft.num_faults + draft.line.num_faults for draft in self.drafts)
        return self.num_faults + num_drafts + self.verify.failures.num_faults

    def _fork(self) -> Random:
        return Random(self.random.getrandbits(64))

    def watch(self) -> Watch:
        """A node's own clock, as wrong as the world's faults have it."""
        faults = self.settings.faults
        ahead_s, drift = self.random.uniform(0.0, faults.clocks_s), self.random.uniform(-faults.drift, faults.drift)
        return Watch(self.clock, ahead_s, drift)

    # what happens

    def run(self, limit_s: float) -> None:
        """Runs until every generation is over; Unfinished tells who is not after `limit_s` of virtual time."""
        while self.num_left:
            self.clock.step()
            if self.now > limit_s:
                raise Unfinished(f"seed {self.seed}: not finished after {limit_s} s: {self._unfinished()}")

    def run_rounds(self, number: int) -> None:
        """Runs until the verify node begins its round of that number; users must have enough to ask for."""
        core = self.verify.core
        if core is None or core.rounds.num_rounds < number:
            self.verify.last_round = number
            self.clock.run()

    def settle(self, seconds: float) -> None:
        """Lets time pass."""
        self.clock.run_until(self.now + seconds)

    def _unfinished(self) -> list[str]:
        core = self.verify.core
        return [
            f"{generation.session.state} with {len(generation.delivered)} tokens, there: "
            f"{core.sessions.get(generation.session.request.session_id) if core else None}"
            for draft in self.drafts
            for generation in draft.generations.values()
        ]

    def end_connections(self, *, in_good_order: bool) -> None:
        """At once: even the last words of one that stops in good order are lost."""
        for draft in self.drafts:
            draft.connection.lose()

    def acceptance(self, session_id: bytes) -> Acceptance | None:
        """Returns how likely drafts of a session are accepted; None if no draft node knows it."""
        found = (draft.generations.get(session_id) for draft in self.drafts)
        return next((generation.acceptance for generation in found if generation is not None), None)

    def request_over(self) -> None:
        self.num_done += 1

    def abandon(self) -> None:
        """Ends the run: requests that are not over are not waited for."""
        self._num_requests = self.num_done

    def join_next(self, num_rounds: int) -> None:
        """Lets the next client join if it is to come after at most `num_rounds` rounds; one client per call."""
        for draft, joins in zip(self.drafts, self.settings.joins, strict=False):
            if joins <= num_rounds and not draft.joined:
                draft.join()
                return

    # faults that befall nodes

    def _plan_faults(self) -> None:
        faults = self.settings.faults
        self._every(faults.restart_every_s, lambda: self._some_verify().restart(self.random.random() * faults.down_s))
        self._every(faults.cut_every_s, lambda: self._some_draft().cut(self._pause()))
        self._every(faults.freeze_every_s, lambda: self._some_draft().freeze(self._pause()))
        self._every(faults.kill_every_s, lambda: self._some_draft().restart())
        self._every(
            faults.away_every_s, lambda: self._some_verify().restart(self.random.expovariate(1 / faults.away_s))
        )
        self._every(faults.stop_every_s, lambda: self._some_verify().stop(self.random.random() * faults.down_s))
        self._every(faults.leave_every_s, lambda: self._some_draft().leave())
        self._every(faults.drain_every_s, lambda: self._some_draft().drain())
        self._every(faults.break_every_s, lambda: self._some_draft().connection.lose())
        self._every(faults.turn_away_every_s, lambda: self._some_draft().connection.turn_away(self._pause()))

    def _every(self, mean_s: float, fault: Callable[[], None]) -> None:
        if mean_s <= 0:
            return

        def strike() -> None:
            if self.num_left:
                self.num_faults += 1
                fault()
                self.clock.after(self.random.expovariate(1 / mean_s), strike)

        self.clock.after(self.random.expovariate(1 / mean_s), strike)

    def _some_verify(self) -> VerifyNode:
        return self.verify

    def _some_draft(self) -> DraftNode:
        return self.random.choice(self.drafts)

    def _pause(self) -> float:
        return self.random.expovariate(1 / self.settings.faults.pause_s)
