"""The verify node's daemon (`verify_node/process/daemon.py`) on the world's clock."""

from collections.abc import Sequence
from math import inf
from random import Random

from msgspec.structs import replace

from experiments.simulation.network import MAX_BYTES, verdict_bytes
from experiments.simulation.nodes.failures import WHY, Failures
from experiments.simulation.nodes.invariants import CheckedCore
from experiments.simulation.nodes.own_drafter import drafting_s, priced
from experiments.simulation.nodes.surroundings import Finished, Surroundings
from experiments.simulation.settings import Settings, of_client
from experiments.simulation.texts.recorded import RecordedLookup
from experiments.simulation.texts.target import Target
from experiments.simulation.texts.text import VOCAB
from goodspeed.engine.openvino.sizes import Size
from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair import policies
from goodspeed.fair.policies import OwnPolicy, Policy
from goodspeed.fair.refined import Refined
from goodspeed.fleet.replicas import Load, Replica
from goodspeed.wire.handshake import Hello
from goodspeed.wire.messages import Draft, OpenSession, UpMessage, Verdict
from verify_node.core.core import VerifyCore
from verify_node.core.replies import Send
from verify_node.scheduler.prompt_lookup import PromptLookup
from verify_node.scheduler.round import Outcome, Round

MOMENT_S = 1e-6
"""After what happens at once, and before anything else."""


def make_core(
    settings: Settings, boot_id: bytes = b"verify-0", target: int = 0, prompt_lookup: PromptLookup | None = None
) -> VerifyCore:
    """The state machine as the daemon builds it, for the target of this number."""
    core = settings.core
    welcome = core.welcome(
        boot_id=boot_id,
        tokenizer="simulated",
        vocab_size=VOCAB,
        context_len=settings.context_len,
        max_message_bytes=MAX_BYTES,
        target_fingerprint=str(target),
    )
    kept, max_unused = settings.prefix_cache, settings.max_unused
    pool = PagePool(settings.num_pages, settings.page_size, prefix_cache=kept, max_unused=max_unused)
    policy: Policy | None = None  # the settings' own
    if settings.policy == "random":
        policy = policies.create("random", seed=settings.policy_seed)
    elif not isinstance(settings.policy, str):
        policy = OwnPolicy(getattr(settings.policy, "__name__", repr(settings.policy)), settings.policy)
    cost = Refined(priced(settings) if settings.known_cost else None, change_rows=settings.change_rows)
    kind = CheckedCore if settings.validate else VerifyCore
    return kind(core, welcome, pool, policy=policy, cost=cost, prompt_lookup=prompt_lookup)


class VerifyNode:
    """One verify node; `restart` kills it and starts another, which knows nothing."""

    def __init__(self, world: Surroundings, random: Random, number: int = 0) -> None:
        """number: among the verify nodes of the world."""
        self.world = world
        self.number = number
        self.num_boots = 0
        self.num_targets = 1
        self.last_round: float = float("inf")  # the world stops when it begins
        self.num_rounds = 0  # of all its lives, as that below
        self.num_cached = 0  # tokens that were in memory already, when their texts were let into a round
        self.booted_at = self.went_at = self.back_at = 0.0
        self.core: VerifyCore | None = None
        self.failures = Failures(world.settings.faults, random)
        self._random = random
        self._watch = world.watch()
        self._wake_at = float("inf")
        self._idle_since = 0.0
        self._num_found = 0  # by the process that there is
        self._in_flight = False  # a round is
        self._down_s = 0.0  # for how long it goes when that is over
        self._opened: set[bytes] = set()
        self._sizes, self._last_size = Size(world.settings.change_rows), 0
        self._reading_s = 0.0  # of the drafts since the round before
        self._drafted: set[bytes] = set()  # sessions whose drafts have come since then
        self._boot()

    def _boot(self) -> None:
        settings = self.world.settings
        self.num_boots += 1
        self.booted_at = self.world.clock.now
        retarget = settings.faults.retarget
        if retarget and self.num_boots > 1 and self._random.random() < retarget:
            self.num_targets += 1
        number = self.num_targets - 1
        own = RecordedLookup(self.world.acceptance) if settings.replays_own else None
        self.core = make_core(settings, (self.number << 32 | self.num_boots).to_bytes(8, "big"), number, own)
        self.target = Target(self.core.pool, self.core.limits, self.core.welcome.context_len, number)
        self._num_found = 0
        self._drafted.clear()
        self._wake_at = float("inf")
        self._in_flight = False
        self._idle_since = self.world.clock.now
        self._tick(self.core)

    @property
    def is_gone(self) -> bool:
        """True if no process will be here any more."""
        return self.core is None and self.back_at == inf

    def load(self) -> Load | None:
        """The next time it has to act, by its own clock; None while there is no process."""
        return self.core.load(self._watch.now) if self.core is not None else None

    def know_replicas(self, own: str, replicas: Sequence[tuple[Replica, float]]) -> None:
        """The table of the fleet, and for how long each entry has been told."""
        if self.core is None:
            return
        now = self._watch.now
        told = [
            replace(one, load=replace(one.load, told_at=now - age_s)) if one.load is not None else one
            for one, age_s in replicas
        ]
        self._reply(self.core.fleet.know(own, told, now))

    def restart(self, down_s: float, *, in_good_order: bool = False) -> None:
        """kill -9, and a new process after `down_s`; for good if that is infinite."""
        if self.core is not None:
            self.core = None
            self.went_at = self.world.clock.now
            self.back_at = self.went_at + down_s
            if self.world.settings.faults.connections:
                self.world.end_connections(in_good_order=in_good_order)
            if down_s < inf:
                self.world.clock.after(down_s, self._boot)

    def stop(self, down_s: float) -> None:
        """Stops in good order, as soon as the round in flight is over; a new process comes after `down_s`."""
        if self.core is not None and not self.core.draining:
            self.core.drain()
            self._down_s = down_s
            if not self._in_flight:
                self._go(self.core)

    def _go(self, core: VerifyCore) -> None:
        self._reply(core.farewell(self._watch.now))
        self.restart(self._down_s, in_good_order=True)

    def receive(self, peer_id: bytes, message: UpMessage) -> None:
        if self.core is not None:
            self._reply(self.core.receive(peer_id, message, self._watch.now))
            if isinstance(message, Hello) and (peer := self.core.register.peers.get(peer_id)) is not None:
                number = int(message.name.removeprefix("client-"))
                peer.client.weight = of_client(self.world.settings.weight, number)
            if isinstance(message, Draft) and self.world.settings.draft_core is not None:
                self._reading_s += self.world.settings.draft_core.draft_s
            if isinstance(message, Draft) and message.tokens:
                self._drafted.add(message.session_id)
            if isinstance(message, OpenSession):
                self._opened.add(peer_id)
                self.world.join_next(self.core.rounds.num_rounds)
            self._plan()

    def _tick(self, core: VerifyCore) -> None:
        if self.core is core:
            self._reply(core.tick(self._watch.now))
            self._plan()
            self.world.clock.after(core.welcome.heartbeat_s, self._tick, core)

    def _plan(self) -> None:
        """Starts a round if one may start. A draft model on the same GPU has drafted before."""
        if self.world.settings.own_draft_cost is None:
            self._start()
        else:
            self.world.clock.after(MOMENT_S, self._start)

    def _start(self) -> None:
        """Starts a round if one may start, else comes back when the core says so."""
        core = self.core
        if core is None or self._in_flight:
            return
        if len(self._opened) < sum(joins <= core.rounds.num_rounds for joins in self.world.settings.joins):
            return  # a client that must have come by then has not
        now = self._watch.now
        self._reply(core.admit(now))
        planned = core.plan(now)
        if planned is not None:
            self.num_rounds += 1
            self.num_cached += core.counts.num_found - self._num_found
            self._num_found = core.counts.num_found
            self._in_flight = True
            outcomes = self.failures.on(planned, self.target.run(planned))
            computed = self._computed(planned)
            duration_s = self._duration_s(planned, computed)
            work_s = self._work_s(planned)
            args = core, planned, outcomes, duration_s, computed, work_s
            self.world.clock.after(duration_s + work_s, self._finish, *args)
            if planned.number >= self.last_round:
                self.world.clock.stop()
        elif now < core.wake_at < self._wake_at:
            self._wake_at = core.wake_at
            self.world.clock.at(self._watch.until(core.wake_at), self._wake, core)

    def _computed(self, planned: Round) -> float:
        """`Engine.computed` of the pass: with spare rows, and what a change of its size takes."""
        change_rows, num_rows = self.world.settings.change_rows, planned.num_tokens
        if not change_rows:
            return num_rows
        size, last = self._sizes.of(num_rows), self._last_size
        self._last_size = size
        return size + (change_rows if size != last else 0.0)

    def _duration_s(self, planned: Round, computed: float) -> float:
        settings = self.world.settings
        seconds = settings.round_cost.round_s(computed, len(planned.entries), planned.context_tokens)
        seconds += drafting_s(settings, planned)
        if settings.draft_core is not None:
            seconds += settings.draft_core.slowed * self.world.clock.core_busy_s(seconds) + self._reading_s
            self._reading_s = 0.0
        if settings.round_noise:
            seconds *= max(0.1, self._random.gauss(1.0, settings.round_noise))
        return seconds

    def _work_s(self, planned: Round) -> float:
        """Seconds of its own work. A draft takes some whether it is verified or not."""
        drafted = self._drafted.union(entry.session_id for entry in planned.entries if entry.num_drafted)
        self._drafted.clear()
        work = self.world.settings.work
        return work.session_s * len(planned.entries) + work.draft_s * len(drafted)

    def _wake(self, core: VerifyCore) -> None:
        if self.core is core:
            self._wake_at = float("inf")
            self._plan()

    def _finish(
        self,
        core: VerifyCore,
        planned: Round,
        outcomes: list[Outcome] | None,
        duration_s: float,
        computed: float,
        work_s: float,
    ) -> None:
        if self.core is not core:
            return  # it was killed in the middle of the round
        self._in_flight = False
        if outcomes is None:
            sends = core.rounds.abort(WHY, self._watch.now)
        else:
            sends = core.rounds.finish(outcomes, duration_s, self._watch.now, computed=computed, work_s=work_s)
            if (error := core.allocator.misfits.error) is not None:
                raise error  # the daemon goes on without drafts, of which a simulated policy would show nothing
        started = self.world.clock.now - duration_s - work_s
        if self.world.on_round is not None:
            verdicts = tuple(send.message for send in sends if isinstance(send.message, Verdict))
            waited_s, trunk = started - self._idle_since, self.world.trunk
            send_s = trunk.seconds(sum(map(verdict_bytes, verdicts))) if trunk else 0.0
            self.world.on_round(Finished(planned, started, waited_s, duration_s, verdicts, send_s, work_s))
        self._idle_since = self.world.clock.now
        self.world.join_next(planned.number)
        self._reply(sends)
        if core.draining:
            self._go(core)
        self._plan()

    def _reply(self, sends: Sequence[Send]) -> None:
        for send in sends:
            self.world.send_down(send.peer_id, send.message)
