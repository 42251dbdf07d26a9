"""One verify node and several draft nodes on a virtual clock, with a network between them that may be bad."""

from collections.abc import Callable
from math import inf
from random import Random

from experiments.simulation.acceptance import Acceptance
from experiments.simulation.clock import Clock, Watch
from experiments.simulation.draft import DraftNode
from experiments.simulation.network import Line, Trunk
from experiments.simulation.rounds import Finished
from experiments.simulation.settings import Settings
from experiments.simulation.surroundings import Receiver
from experiments.simulation.verify import VerifyNode
from goodspeed.wire.messages import DownMessage, Refusal, UpMessage


class Unfinished(AssertionError):
    """A world that stands still, or is too slow."""


class World:
    """Everything in it follows from the seed: the same seed gives the same rounds, bit for bit."""

    def __init__(
        self,
        seed: int,
        settings: Settings | None = None,
        on_round: Callable[[Finished], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """clock: one that it shares with other worlds; None: its own."""
        self.seed = seed
        self.settings = settings or Settings()
        self.random = Random(seed)
        self.clock = Clock() if clock is None else clock
        self.on_round = on_round
        self.refusals: dict[str, int] = {}
        self.num_faults = 0  # that befell nodes
        self.num_done = 0  # requests
        self._num_requests = self.settings.num_requests
        self.peers: dict[bytes, Receiver] = {}
        bytes_per_s = self.settings.verify_bytes_per_s
        self.trunk = Trunk(self.clock, bytes_per_s) if bytes_per_s < inf else None
        self.verify = VerifyNode(self, self._fork())
        self.drafts = [DraftNode(self, index, self._fork()) for index in range(self.settings.num_clients)]
        self.join_next(0)
        self._plan_faults()

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

    @property
    def num_messages(self) -> int:
        return sum(draft.line.num_messages for draft in self.drafts)

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
        if core is None or core.num_rounds < number:
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

    def connect(self, peer_id: bytes, receiver: Receiver) -> None:
        """Sends messages for this name to the receiver from now on."""
        self.peers[peer_id] = receiver

    def disconnect(self, peer_id: bytes) -> None:
        """What is on its way to or from this name is lost."""
        self.peers.pop(peer_id, None)

    def end_connections(self) -> None:
        for draft in self.drafts:
            draft.connection.lose()

    def send_up(self, line: Line, peer_id: bytes, message: UpMessage) -> None:
        line.up(message, self._arrive_up, self.verify.num_targets, peer_id)

    def _arrive_up(self, target: int, peer_id: bytes, message: UpMessage) -> None:
        if target == self.verify.num_targets and peer_id in self.peers:
            self.verify.receive(peer_id, message)

    def _arrive_down(self, target: int, draft: Receiver, peer_id: bytes, message: DownMessage) -> None:
        """Messages are late by seconds here, but none outlives a target: no connection outlives the process with it.

        Else a Welcome of the target before could come after that of its successor, and nothing tells them apart.
        """
        if target == self.verify.num_targets:
            draft.receive(peer_id, message)

    def acceptance(self, session_id: bytes) -> Acceptance | None:
        """How likely drafts of a session are accepted; None if no draft node knows it."""
        found = (draft.generations.get(session_id) for draft in self.drafts)
        return next((generation.acceptance for generation in found if generation is not None), None)

    def request_over(self) -> None:
        self.num_done += 1

    def send_down(self, peer_id: bytes, message: DownMessage) -> None:
        if isinstance(message, Refusal):
            self.refusals[message.code] = self.refusals.get(message.code, 0) + 1
        draft = self.peers.get(peer_id)
        if draft is not None:
            draft.line.down(message, self._arrive_down, self.verify.num_targets, draft, peer_id)

    def join_next(self, num_rounds: int) -> None:
        """Lets the next client join if it is to come after at most `num_rounds` rounds; one client per call."""
        for draft, joins in zip(self.drafts, self.settings.joins, strict=False):
            if joins <= num_rounds and not draft.joined:
                draft.join()
                return

    # faults that befall nodes

    def _plan_faults(self) -> None:
        faults = self.settings.faults
        self._every(faults.restart_every_s, lambda: self.verify.restart(self.random.random() * faults.down_s))
        self._every(faults.cut_every_s, lambda: self._some_draft().cut(self._pause()))
        self._every(faults.freeze_every_s, lambda: self._some_draft().freeze(self._pause()))
        self._every(faults.kill_every_s, lambda: self._some_draft().restart())
        self._every(faults.away_every_s, lambda: self.verify.restart(self.random.expovariate(1 / faults.away_s)))
        self._every(faults.stop_every_s, lambda: self.verify.stop(self.random.random() * faults.down_s))
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

    def _some_draft(self) -> DraftNode:
        return self.random.choice(self.drafts)

    def _pause(self) -> float:
        return self.random.expovariate(1 / self.settings.faults.pause_s)
