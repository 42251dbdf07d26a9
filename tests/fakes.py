"""A target and a draft model without tensors, and a world in which both nodes' state machines meet on a virtual clock.

The fake target's next token is a pure function of (seed, everything fed so far), so what the target alone would write
is known; it computes from what the rounds really fed, position by position, so a wrong cache gives a wrong text. It
also checks what no round may do. No sockets, no asyncio, no torch; everything follows from seeds.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from draft_node.actions import Deliver, Fail, Finish, Propose, Proposed, Request, Send
from draft_node.link import Command, VerifyLink
from draft_node.odds import LEAST_ODDS, Odds
from draft_node.session import Session
from goodspeed import codec, policies
from goodspeed.engine.pages import PagePool
from goodspeed.messages import (
    MAX_DRAFT,
    VERSION,
    DownMessage,
    Draft,
    Heartbeat,
    Hello,
    OpenSession,
    Refusal,
    Sampling,
    UpMessage,
    Verdict,
    Welcome,
    digest,
)
from goodspeed.policies import ClientState, Policy
from verify_node import planner
from verify_node.core import FORGOTTEN_S, VerifyCore
from verify_node.core import Send as Down
from verify_node.outcomes import Outcome
from verify_node.planner import Limits, Round
from verify_node.scheduler import Scheduler

VOCAB = 31
STOP = 0
MAX_BYTES = 1 << 20
TICK_S = 0.1
_MASK = (1 << 61) - 1

# -- models ------------------------------------------------------------------------------------------------------------


def _feed(state: int, token: int) -> int:
    return (state * 1_000_003 + token + 7) & _MASK


def _draw(seed: int, state: int) -> int:
    x = ((state ^ (seed * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
    return (x ^ x >> 29) % VOCAB


def next_token(seed: int, tokens: Iterable[int]) -> int:
    """What the fake target says after these tokens."""
    state = 1
    for token in tokens:
        state = _feed(state, token)
    return _draw(seed, state)


def alone(request: Request, context_len: int = 1 << 30) -> tuple[int, ...]:
    """What the fake target writes by itself."""
    tokens = list(request.prompt)
    limit = min(len(tokens) + request.max_tokens, context_len)
    while len(tokens) < limit:
        token = next_token(request.sampling.seed, tokens)
        if token in request.stop_ids:
            break
        tokens.append(token)
    return tuple(tokens[len(request.prompt) :])


class FakeTarget:
    """Runs rounds; fails the test when a round breaks a limit or feeds what does not fit its cache."""

    def __init__(self, pool: PagePool, limits: Limits, context_len: int = 1 << 30) -> None:
        self.pool = pool
        self.limits = limits
        self.context_len = context_len
        self.num_rounds = self.num_drafted = self.num_deferred = self.num_preempted = self.num_chunks = 0
        self._states: dict[bytes, list[int]] = {}  # of each session: the state after every cached position

    def run(self, planned: Round) -> list[Outcome]:
        assert planned.entries, "an empty round"
        assert planned.num_drafted <= self.limits.budget, "the budget is exceeded"
        assert planned.num_tokens <= self.limits.max_round_tokens, "too many tokens in a round"
        assert len({entry.session_id for entry in planned.entries}) == len(planned.entries)
        self.num_rounds += 1
        self.num_drafted += planned.num_drafted
        self.num_deferred += len(planned.deferred)
        self.num_preempted += len(planned.preempted)
        outcomes = []
        for entry in planned.entries:
            assert entry.tokens, "an entry feeds nothing"
            assert self.pool.length(entry.session_id) == entry.start, "an entry begins where its cache does not end"
            assert entry.start + len(entry.tokens) <= self.context_len, "the context is exceeded"
            self.pool.extend(entry.session_id, len(entry.tokens))  # PoolExhausted would be the planner's fault
            states = self._states.setdefault(entry.session_id, [])
            del states[entry.start :]
            for token in entry.tokens:
                states.append(_feed(states[-1] if states else 1, token))
            self.num_chunks += not entry.samples
            if entry.samples:
                outcomes.append(self._verify(entry, states))
        return outcomes

    @staticmethod
    def _verify(entry: planner.Entry, states: list[int]) -> Outcome:
        drawn = [_draw(entry.sampling.seed, state) for state in states[entry.base_len - 1 :]]
        drafted = entry.tokens[len(entry.tokens) - entry.num_drafted :]
        equal = [left == right for left, right in zip(drafted, drawn, strict=False)]
        num_accepted = next((index for index, same in enumerate(equal) if not same), len(equal))
        tokens = (*drafted[:num_accepted], drawn[num_accepted])
        return Outcome(entry.session_id, tokens, num_accepted, float(sum(equal)))


def propose(propose: Propose, alpha: float) -> tuple[int, ...]:
    """A draft that agrees with the fake target at each position with probability alpha, the same one every time."""
    seed, tokens = propose.request.sampling.seed, list(propose.tokens)
    state = 1
    for token in tokens:
        state = _feed(state, token)
    for _ in range(propose.length):
        right = _draw(seed, state)
        agrees = _draw(seed + 99, state) < alpha * VOCAB
        tokens.append(right if agrees else (right + 1) % VOCAB)
        state = _feed(state, tokens[-1])
    return tuple(tokens[len(propose.tokens) :])


class Phases:
    """A policy whose lengths come and go: now nothing, now a lot, now for some only."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._left = 0
        self._share = 0.0

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        if self._left == 0:
            self._left = self._random.randint(1, 30)
            self._share = self._random.choice([0.0, 0.0, 0.3, 1.0])
        self._left -= 1
        lengths = []
        for client in clients:
            wanted = self._random.randint(1, 6) if self._random.random() < self._share else 0
            lengths.append(min(wanted, client.max_length, budget))
            budget -= lengths[-1]
        return lengths


# -- one verify node, by hand ------------------------------------------------------------------------------------------


def make_core(
    *,
    budget: int = 8,
    max_round_tokens: int = 64,
    linger_s: float = 0.0,
    rounds: str = "continuous",
    policy: str | Policy = "gradient",
    num_pages: int = 64,
    page_size: int = 4,
    pool: PagePool | None = None,
    context_len: int = 200,
    vocab_size: int = VOCAB,
    max_sessions: int = 100,
    max_client_sessions: int = 100,
    boot_id: bytes = b"verify-0",
    lease_s: float = 6.0,
    eta: float = 0.1,
    beta: float = 0.1,
) -> VerifyCore:
    """A verify node's state machine, by default with the fake target's vocabulary."""
    return VerifyCore(
        welcome=Welcome(
            version=VERSION,
            boot_id=boot_id,
            tokenizer="fake",
            vocab_size=vocab_size,
            context_len=context_len,
            max_length=min(budget, MAX_DRAFT),
            max_message_bytes=MAX_BYTES,
            heartbeat_s=1.0,
            lease_s=lease_s,
        ),
        limits=Limits(budget, max_round_tokens, linger_s),
        planner=planner.create(rounds),
        scheduler=Scheduler(
            policies.create(policy) if isinstance(policy, str) else policy,
            budget,
            eta=eta,
            beta=beta,
            steer=rounds == "continuous",
        ),
        pool=pool or PagePool(num_pages, page_size),
        max_sessions=max_sessions,
        max_client_sessions=max_client_sessions,
    )


def make_hello(name: str = "a", **changes: Any) -> Hello:
    return replace_message(Hello(VERSION, name, name.encode()[-8:].rjust(8), "fake", "fake-draft"), **changes)


def make_open(number: int = 1, *, epoch: int = 1, prompt: Sequence[int] = (1, 2, 3), **changes: Any) -> OpenSession:
    opened = OpenSession(session_id(number), epoch, tuple(prompt), (), Sampling(seed=number), max_tokens=20)
    return replace_message(opened, **changes)


def session_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def replace_message(message: Any, **changes: Any) -> Any:
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return type(message)(**(fields | changes))


class Desk:
    """A verify node with the fake target; peers are names, the clock is set by hand."""

    def __init__(self, core: VerifyCore | None = None, **options: Any) -> None:
        self.core = core or make_core(**options)
        self.target = FakeTarget(self.core.pool, self.core.limits, self.core.context_len)
        self.now = 0.0

    def hello(self, name: str = "a", **changes: Any) -> DownMessage:
        return self.up(name, make_hello(name, **changes))[0]

    def up(self, peer: str, message: UpMessage) -> list[DownMessage]:
        """A message of a peer; the answers, all of which go to that peer."""
        sends = self.core.receive(peer.encode(), message, self.now)
        assert {send.peer_id for send in sends} <= {peer.encode()}
        return [send.message for send in sends]

    def open(self, peer: str = "a", number: int = 1, **changes: Any) -> list[DownMessage]:
        return self.up(peer, make_open(number, **changes))

    def draft(self, peer: str = "a", number: int = 1, *, alpha: float = 1.0, **changes: Any) -> list[DownMessage]:
        """The draft that an honest node would send now, but for `changes`."""
        return self.up(peer, replace_message(self.honest_draft(number, alpha), **changes))

    def honest_draft(self, number: int = 1, alpha: float = 1.0) -> Draft:
        session = self.session(number)
        request = request_of(session.opened)
        wanted = Propose(request, session.epoch, 0, tuple(session.tokens), session.assigned or 0)
        return Draft(
            session_id=session.session_id,
            epoch=session.epoch,
            round=session.last_round + 1,
            base_len=len(session.tokens),
            base_digest=digest(session.tokens),
            tokens=propose(wanted, alpha),
        )

    def round(self, duration_s: float = 0.01) -> list[DownMessage]:
        """One round from plan to verdicts; an empty list when there is none to run."""
        planned = self.core.plan(self.now)
        if planned is None:
            return []
        return self.finish(planned, duration_s)

    def finish(self, planned: Round, duration_s: float = 0.01) -> list[DownMessage]:
        outcomes = self.target.run(planned)
        self.now += duration_s
        return [send.message for send in self.core.finish(outcomes, duration_s, self.now)]

    def session(self, number: int = 1) -> Any:
        return self.core.sessions[session_id(number)]

    def text(self, number: int = 1) -> tuple[int, ...]:
        session = self.session(number)
        return tuple(session.tokens[len(session.opened.prompt) :])


def request_of(opened: OpenSession) -> Request:
    return Request(
        opened.session_id,
        opened.prompt,
        opened.sampling,
        opened.max_tokens,
        opened.stop_ids,
        opened.verification,
        opened.max_draft,
    )


# -- a world -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Faults:
    """How bad the world is; probabilities are per message unless said otherwise."""

    lose: float = 0.0
    repeat: float = 0.0
    jitter_s: float = 0.0  # delays are spread so far: messages overtake each other
    restart_every_s: float = 0.0  # of the verify node, on average
    down_s: float = 0.5  # how long it is away then
    cut_every_s: float = 0.0  # of one draft node's line, both ways
    freeze_every_s: float = 0.0  # of one draft node's process
    pause_s: float = 4.0  # how long a cut or a freeze lasts, on average
    kill_every_s: float = 0.0  # of one draft node's process: its users' sessions are lost, and it comes back as new
    no_draft: float = 0.0  # per proposal: the draft model cannot
    hang: float = 0.0  # per proposal: the draft model never answers
    cancel: float = 0.0  # per session: its user goes away somewhere in the middle


@dataclass(frozen=True)
class Settings:
    """A world but for its seed."""

    num_clients: int = 4
    num_sessions: int = 3  # per client
    num_at_once: int = 2  # per client
    min_tokens: int = 1
    max_tokens: int = 40
    stops: float = 0.5  # share of the sessions that have a stop token
    prompt_len: int = 12
    rounds: str = "continuous"
    policy: str = "gradient"
    budget: int = 10
    max_round_tokens: int = 40
    linger_s: float = 0.002
    num_pages: int = 200
    page_size: int = 4
    context_len: int = 120
    max_sessions: int = 100
    max_draft: int = MAX_DRAFT
    latency_s: tuple[float, ...] = (0.01,)  # of client i: entry i modulo the length
    alpha: tuple[float, ...] = (0.8,)
    draft_s_per_token: float = 0.002
    draft_ahead: bool = True
    least_odds: float = LEAST_ODDS
    faults: Faults = field(default_factory=Faults)


class World:
    """One verify node and several draft nodes on a virtual clock, with a network between them that may be bad."""

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.seed = seed
        self.settings = settings or Settings()
        self.random = random.Random(seed)
        self.now = 0.0
        self.num_events = 0
        self.num_messages = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.refusals: dict[str, int] = {}
        self.verify = _VerifyNode(self)
        self.drafts = [_DraftNode(self, index) for index in range(self.settings.num_clients)]
        self._plan_faults()

    # what happens when

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time, self.now), next(self._order), event))

    def run(self, limit_s: float) -> None:
        """Until every generation is over; an AssertionError tells who is not after `limit_s` of virtual time."""
        while not all(draft.idle for draft in self.drafts):
            self.step()
            assert self.now < limit_s, f"seed {self.seed}: not finished after {limit_s} s: {self._unfinished()}"

    def settle(self, seconds: float = 2 * FORGOTTEN_S) -> None:
        """Lets time pass in which nobody asks for anything."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.step()
        self.now = end

    def step(self) -> None:
        self.now, _, event = heapq.heappop(self._events)
        self.num_events += 1
        event()

    def _unfinished(self) -> list[str]:
        return [
            f"{generation.session.state} with {len(generation.delivered)} tokens, there: "
            f"{self.verify.core.sessions.get(generation.session.request.session_id) if self.verify.core else None}"
            for draft in self.drafts
            for generation in draft.generations.values()
        ]

    # the network

    def send_up(self, draft: "_DraftNode", message: UpMessage) -> None:
        data, peer_id = codec.encode(message, MAX_BYTES), draft.peer_id
        for delay in self._fate(draft):
            self.at(self.now + delay, lambda: self.verify.receive(peer_id, codec.decode_up(data, MAX_BYTES)))

    def send_down(self, peer_id: bytes, message: DownMessage) -> None:
        if isinstance(message, Refusal):
            self.refusals[message.code] = self.refusals.get(message.code, 0) + 1
        draft = next((draft for draft in self.drafts if draft.peer_id == peer_id), None)
        if draft is None:
            return  # its process is no more
        data = codec.encode(message, MAX_BYTES)
        for delay in self._fate(draft):
            self.at(self.now + delay, lambda: draft.receive(codec.decode_down(data, MAX_BYTES), peer_id))

    def _fate(self, draft: "_DraftNode") -> list[float]:
        """When the copies of a message arrive; none when it is lost."""
        faults = self.settings.faults
        self.num_messages += 1
        if self.now < draft.cut_until or self.random.random() < faults.lose:
            return []
        copies = 2 if self.random.random() < faults.repeat else 1
        return [draft.latency_s + self.random.random() * faults.jitter_s for _ in range(copies)]

    # faults that befall nodes

    def _plan_faults(self) -> None:
        faults = self.settings.faults
        self._every(faults.restart_every_s, lambda: self.verify.restart(self.random.random() * faults.down_s))
        self._every(faults.cut_every_s, lambda: self._some_draft().cut(self._pause()))
        self._every(faults.freeze_every_s, lambda: self._some_draft().freeze(self._pause()))
        self._every(faults.kill_every_s, lambda: self._some_draft().restart())

    def _every(self, mean_s: float, fault: Callable[[], None]) -> None:
        if mean_s <= 0:
            return

        def strike() -> None:
            if not all(draft.idle for draft in self.drafts):
                fault()
                self.at(self.now + self.random.expovariate(1 / mean_s), strike)

        self.at(self.now + self.random.expovariate(1 / mean_s), strike)

    def _some_draft(self) -> "_DraftNode":
        return self.random.choice(self.drafts)

    def _pause(self) -> float:
        return self.random.expovariate(1 / self.settings.faults.pause_s)


class _VerifyNode:
    """What `verify_node/daemon.py` does, on the world's clock."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.num_boots = 0
        self.core: VerifyCore | None = None
        self._wake_at = float("inf")
        self._boot()

    def _boot(self) -> None:
        settings = self.world.settings
        self.num_boots += 1
        policy: str | Policy = Phases(self.world.seed) if settings.policy == "phases" else settings.policy
        self.core = make_core(
            budget=settings.budget,
            max_round_tokens=settings.max_round_tokens,
            linger_s=settings.linger_s,
            rounds=settings.rounds,
            policy=policy,
            num_pages=settings.num_pages,
            page_size=settings.page_size,
            context_len=settings.context_len,
            max_sessions=settings.max_sessions,
            boot_id=self.num_boots.to_bytes(8, "big"),
        )
        self.target = FakeTarget(self.core.pool, self.core.limits, self.core.context_len)
        self._wake_at = float("inf")
        self._tick(self.core)

    def restart(self, down_s: float) -> None:
        if self.core is not None:
            self.core = None
            self.world.at(self.world.now + down_s, self._boot)

    def receive(self, peer_id: bytes, message: UpMessage) -> None:
        if self.core is not None:
            self._reply(self.core.receive(peer_id, message, self.world.now))
            self._plan()

    def _tick(self, core: VerifyCore) -> None:
        if self.core is core:
            self._reply(core.tick(self.world.now))
            self._plan()
            self.world.at(self.world.now + core.welcome.heartbeat_s, lambda: self._tick(core))

    def _plan(self) -> None:
        """Starts a round if one may start, else comes back when the core says so."""
        core, now = self.core, self.world.now
        if core is None:
            return
        planned = core.plan(now)
        if planned is not None:
            outcomes = self.target.run(planned)
            duration_s = 0.01 + 0.0005 * planned.num_tokens
            self.world.at(now + duration_s, lambda: self._finish(core, outcomes, duration_s))
        elif now < core.wake_at < self._wake_at:
            self._wake_at = core.wake_at
            self.world.at(core.wake_at, lambda: self._wake(core))

    def _wake(self, core: VerifyCore) -> None:
        if self.core is core:
            self._wake_at = float("inf")
            self._plan()

    def _finish(self, core: VerifyCore, outcomes: list[Outcome], duration_s: float) -> None:
        if self.core is not core:
            return  # it was killed in the middle of the round
        self._reply(core.finish(outcomes, duration_s, self.world.now))
        self._plan()

    def _reply(self, sends: list[Down]) -> None:
        for send in sends:
            self.world.send_down(send.peer_id, send.message)


@dataclass(slots=True)
class Generation:
    """One request and what its user got."""

    session: Session
    delivered: list[int] = field(default_factory=list)
    cancel_after: int | None = None  # tokens
    finish: Finish | None = None
    fail: Fail | None = None
    cancelled: bool = False


class _DraftNode:
    """What `draft_node/daemon.py` does, on the world's clock, with a fake draft model."""

    def __init__(self, world: World, index: int) -> None:
        settings = world.settings
        self.world = world
        self.index = index
        self.num_boots = 0
        self.latency_s = settings.latency_s[index % len(settings.latency_s)]
        self.alpha = settings.alpha[index % len(settings.alpha)]
        self.cut_until = self.frozen_until = 0.0
        self.waiting = deque(self._requests(index))
        self.generations: dict[bytes, Generation] = {}
        self.done: list[Generation] = []
        self.done_at = 0.0  # the last of them
        self._boot()
        self._tick()

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.generations

    def _requests(self, index: int) -> Iterable[Request]:
        settings, rng = self.world.settings, self.world.random
        for number in range(settings.num_sessions):
            seed = index * 1000 + number
            yield Request(
                session_id=rng.randbytes(16),
                prompt=tuple(rng.randrange(VOCAB) for _ in range(rng.randint(1, settings.prompt_len))),
                sampling=Sampling(seed=seed),
                max_tokens=rng.randint(settings.min_tokens, settings.max_tokens),
                stop_ids=(STOP,) if rng.random() < settings.stops else (),
                max_draft=settings.max_draft,
            )

    def cut(self, seconds: float) -> None:
        self.cut_until = self.world.now + seconds

    def freeze(self, seconds: float) -> None:
        self.frozen_until = self.world.now + seconds

    def restart(self) -> None:
        """kill -9, and a new process at once."""
        for generation in self.generations.values():
            generation.cancelled = True
            self.done.append(generation)
        self.generations.clear()
        self.frozen_until = 0.0
        self._boot()

    def _boot(self) -> None:
        self.num_boots += 1
        boot_id = f"{self.index}-{self.num_boots}".rjust(8).encode()
        self.peer_id = b"peer-" + boot_id
        self.link = VerifyLink.begin(make_hello(f"client-{self.index}", boot_id=boot_id), 3.0, self.world.now)
        self._start_some()

    def _start_some(self) -> None:
        while self.waiting and len(self.generations) < self.world.settings.num_at_once:
            request = self.waiting.popleft()
            settings = self.world.settings
            generation = Generation(Session(request, settings.draft_ahead, Odds(least=settings.least_odds)))
            if self.world.random.random() < self.world.settings.faults.cancel:
                generation.cancel_after = self.world.random.randrange(request.max_tokens)
            self.generations[request.session_id] = generation
            if self.link.connected:
                self._act(generation, generation.session.connect(self.world.now))

    # events; a frozen process finds them waiting when it goes on

    def receive(self, message: DownMessage, peer_id: bytes) -> None:
        if peer_id != self.peer_id:
            return  # it was for the process before this one
        if self.world.now < self.frozen_until:
            self.world.at(self.frozen_until, lambda: self.receive(message, peer_id))
            return
        now = self.world.now
        self._obey(self.link.heard(message, now))
        if isinstance(message, Verdict | Refusal) and message.session_id in self.generations:
            generation = self.generations[message.session_id]
            self._act(generation, generation.session.receive(message, now))

    def _tick(self) -> None:
        now = self.world.now
        self.world.at(max(now + TICK_S, self.frozen_until), self._tick)
        if now >= self.frozen_until:
            self._obey(self.link.tick(now))
            for generation in list(self.generations.values()):
                self._act(generation, generation.session.tick(now))

    def _proposed(self, proposed: Proposed) -> None:
        if self.world.now < self.frozen_until:
            self.world.at(self.frozen_until, lambda: self._proposed(proposed))
        elif proposed.session_id in self.generations:
            generation = self.generations[proposed.session_id]
            self._act(generation, generation.session.proposed(proposed, self.world.now))

    # actions

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Command.SAY_HELLO:
                    self.world.send_up(self, self.link.hello)
                case Command.BEAT:
                    self.world.send_up(self, Heartbeat(self.link.hello.boot_id))
                case Command.OPEN_SESSIONS:
                    for generation in list(self.generations.values()):
                        self._act(generation, generation.session.connect(self.world.now))
                case Command.DROP_SESSIONS:
                    for generation in self.generations.values():
                        generation.session.disconnect()
                case Command.RECONNECT:
                    pass

    def _act(self, generation: Generation, actions: Iterable[Any]) -> None:
        for action in actions:
            match action:
                case Send():
                    self.world.send_up(self, action.message)
                case Propose():
                    self._propose(action)
                case Deliver():
                    generation.delivered += action.tokens
                case Finish():
                    generation.finish = action
                case Fail():
                    generation.fail = action
        wanted = generation.cancel_after is None or len(generation.delivered) <= generation.cancel_after
        if generation.finish or generation.fail or not wanted:
            self._end(generation)

    def _end(self, generation: Generation) -> None:
        if self.generations.pop(generation.session.request.session_id, None) is None:
            return
        generation.cancelled = not (generation.finish or generation.fail)
        self.done_at = self.world.now
        for action in generation.session.cancel():
            self.world.send_up(self, action.message)
        self.done.append(generation)
        self._start_some()

    def _propose(self, wanted: Propose) -> None:
        faults, rng = self.world.settings.faults, self.world.random
        if rng.random() < faults.hang:
            return
        tokens = () if rng.random() < faults.no_draft else propose(wanted, self.alpha)
        seconds = 0.001 + self.world.settings.draft_s_per_token * wanted.length
        guess, tokens = (tokens[0], tokens[1:]) if wanted.ahead and tokens else (None, tokens)
        proposed = Proposed(wanted.request.session_id, wanted.epoch, wanted.round, tokens, None, seconds, guess)
        self.world.at(self.world.now + seconds, lambda: self._proposed(proposed))


def with_faults(settings: Settings, **faults: float) -> Settings:
    return replace(settings, faults=replace(settings.faults, **faults))
