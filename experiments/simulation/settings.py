"""Settings of a simulated world, all but its seed. Plain data.

What is different for each client is a tuple: client i takes entry i modulo its length.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, TypeAlias, TypeVar, cast

from experiments.simulation.arrivals import Schedule
from experiments.simulation.texts.acceptance import Acceptances
from experiments.simulation.texts.claims import Claims, Trees
from experiments.simulation.texts.ngrams import RIGHT, NgramKind
from goodspeed.fair.policies import Policy
from goodspeed.fair.round_time import CostModel, Linear
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import MAX_DRAFT, Verification
from verify_node.core.settings import DEFAULTS, CoreSettings, RoundKind

T = TypeVar("T")

ROUND_COST = Linear(fixed_s=0.01, token_s=0.0005)
DRAFT_COST = Linear(fixed_s=0.002)

PAPER: dict[str, Any] = {"rounds": "barrier", "verification": ("ratio",)}
"""Rounds as published: each waits for every draft, which is as long as it may be, and verified whole. `--preset paper`
has the published estimators, too (beta 0.5, plain Eq. 3): the experiments on rounds vary these or keep the defaults."""


@dataclass(frozen=True)
class Faults:
    """The faults of a world; probabilities are per message unless said otherwise."""

    lose: float = 0.0
    repeat: float = 0.0
    jitter_s: float = 0.0  # delays are spread so far: messages overtake each other
    restart_every_s: float = 0.0  # of the verify node, on average
    down_s: float = 0.5  # how long it is away then
    retarget: float = 0.0  # per restart of the verify node: it comes back with another target
    cut_every_s: float = 0.0  # of one draft node's line, both ways
    freeze_every_s: float = 0.0  # of one draft node's process
    pause_s: float = 4.0  # how long a cut or a freeze lasts, on average
    kill_every_s: float = 0.0  # of one draft node's process: its users' sessions are lost, and it comes back as new
    away_every_s: float = 0.0  # of the verify node, on average
    away_s: float = 20.0  # how long it is away then, on average: long enough to be gone on without
    stop_every_s: float = 0.0  # of the verify node: it stops in good order, and comes back after at most `down_s`
    leave_every_s: float = 0.0  # of one draft node: it stops in good order, and another process takes its place
    drain_every_s: float = 0.0  # of one draft node: it ends what its users wait for, and then stops in good order
    break_every_s: float = 0.0  # of one draft node's connection: what is on it is lost, and the next has another name
    turn_away_every_s: float = 0.0  # of one draft node: for a pause the verify node takes no connection of it
    busy: float = 0.0  # per message of a draft node: it cannot be sent
    connections: bool = False  # they end with a node: what is on them is lost, and the next one has another name
    no_draft: float = 0.0  # per proposal: the draft model cannot
    hang: float = 0.0  # per proposal: the draft model never answers
    cancel: float = 0.0  # per session: its user goes away somewhere in the middle
    clocks_s: float = 0.0  # every node's clock is wrong by up to so much
    drift: float = 0.0  # and goes too fast or too slow by up to this share
    abort: float = 0.0  # per round: the target model fails on it as a whole
    fail: float = 0.0  # per round and session: it fails on that one
    bad: float = 0.0  # per session: every round with it fails

    @property
    def strikes_nodes(self) -> bool:
        """True if a node, or its line, may be gone for a while or for good."""
        verify = self.restart_every_s or self.away_every_s or self.stop_every_s
        draft = self.freeze_every_s or self.kill_every_s or self.leave_every_s or self.drain_every_s
        line = self.cut_every_s or self.break_every_s or self.turn_away_every_s or self.busy
        return bool(verify or draft or line)


@dataclass(frozen=True)
class Core:
    """A core on which all draft nodes work in turn, beside that of the verify node."""

    verdict_s: float  # work of a draft node with a verdict
    draft_s: float  # work of the verify node with a draft: its next round is longer
    slowed: float  # share by which rounds are longer while draft models compute


@dataclass(frozen=True)
class Work:
    """The verify node's own work in a round, in series with its forward pass."""

    session_s: float  # for each session
    draft_s: float  # more of it for each session with a draft


Lies: TypeAlias = Literal["none", "empty", "strange"]
Knows: TypeAlias = Literal["all", "one", "twice", "nowhere"]


@dataclass(frozen=True)
class Fleet:
    """Faults that only several verify nodes have."""

    knows: tuple[Knows, ...] = ("all",)
    """Of each client: which verify nodes its options name: all, one, one by two names, or one beside a place where
    nobody is."""
    late: float = 0.0  # share of the verify nodes that are not there at first
    away_s: float = 5.0  # how long they are away then, on average
    part_every_s: float = 0.0  # a draft node and a verify node cannot reach each other for a pause
    gone_every_s: float = 0.0  # a verify node goes for good; one is left
    roll_every_s: float = 0.0  # all of them stop in good order and come back, one after the other
    table_lag_s: float = 0.0  # their table is so old
    freeze_table_every_s: float = 0.0  # it is not renewed for a pause
    lies: Lies = "none"
    """Half of its reports about the others are lies: that they have nothing to do, so that sessions go in circles; or
    that they have another target."""


@dataclass(frozen=True)
class Settings:
    """A world but for its seed."""

    # what users ask for
    num_clients: int = 4
    num_sessions: int = 3  # per client
    num_at_once: int = 2  # per client
    weight: tuple[float, ...] = (1.0,)  # of each client in the utility
    loads: tuple[int, ...] = ()  # instead of it, of each client
    min_tokens: int = 1
    max_tokens: int = 40
    stops: float = 0.5  # share of the sessions that have a stop token
    prompt_len: int = 12  # at most
    temperature: float = 1.0  # that texts are asked for with; what is accepted of them is said below
    repeats: float = 0.0  # share of the prompts that begin like the one before, of whichever user that was
    sizes: Callable[[int, int], tuple[int, int]] | None = None
    """(number of the client, of its session) -> tokens of its prompt, tokens wanted: instead of chance."""
    joins: tuple[int, ...] = ()
    """The verify round after which each client comes, one after another, and is waited for; default: all at once."""
    arrivals: tuple[Schedule, ...] = ()
    """Times and kinds of each client's requests, instead of one after another and by chance; all are served at once."""
    # the verify node
    rounds: str = DEFAULTS.rounds  # of `RoundKind`; "barrier" is the paper
    policy: str | Callable[[], Policy] = DEFAULTS.policy  # or what makes a new one
    policy_seed: int = 0  # of `random`
    budget: int = DEFAULTS.budget
    self_draft: bool = DEFAULTS.self_draft
    is_shared: bool = False  # draft nodes are on its machine: it measures whether their models may draft
    replays_own: bool = False  # it drafts from sessions' own texts what was recorded: `texts/recorded.py`
    eta: float = DEFAULTS.eta
    weigh_evidence: bool = DEFAULTS.weigh_evidence
    beta: float = DEFAULTS.beta
    max_round_tokens: int = DEFAULTS.max_round_tokens
    num_pages: int = 200
    page_size: int = 4
    context_len: int = 120
    max_sessions: int = 100
    admission: str | None = DEFAULTS.admission  # whom it promises what a text is to keep
    order: str = DEFAULTS.order  # whose texts keep their memory
    prefix_cache: bool = False  # it keeps pages of read text for texts that begin alike
    max_unused: int | None = None  # that it keeps without a session; None: all
    round_cost: CostModel = ROUND_COST
    known_cost: bool = False  # it has a profile: `round_cost` itself
    change_rows: float = 0.0  # `Engine.change_rows`; its passes then have spare rows
    work: Work = Work(0.0, 0.0)
    round_noise: float = 0.0  # standard deviation of a round's time, as a share of it
    own_draft_cost: CostModel | None = None
    """Of a pass of a draft model on the verify node's GPU: it drafts before each round what the draft nodes call their
    model's, which then costs them nothing and is there at once. None: the GPU only verifies."""
    num_verifies: int = 1  # of more than one `fleet.world.FleetWorld` is made
    fleet: Fleet = field(default_factory=Fleet)
    # the draft nodes
    max_draft: int = MAX_DRAFT
    verification: tuple[Verification, ...] = ("match",)  # of each client's texts
    alpha: tuple[float, ...] = (0.8,)
    acceptance: Acceptances | None = None  # instead of alpha
    draft_cost: tuple[CostModel, ...] = (DRAFT_COST,)  # of one forward pass
    parallel_decay: float | None = None
    """Draft models draft all tokens of a request in one pass (PARD); the share of the acceptance that is left from one
    depth to the next, since no token knows those before it. None: a pass for each token."""
    ngrams: tuple[NgramKind, ...] = ("off",)  # what drafts beside the draft model, or without one
    ngram_rate: tuple[float, ...] = (RIGHT,)  # how often tokens of an index of kind `right` are the target's
    has_model: tuple[bool, ...] = (True,)
    claims: tuple[Claims, ...] = ("known",)  # probabilities of drafted tokens
    trees: tuple[Trees, ...] = ("own",)  # that they send
    draft_core: Core | None = None  # that all draft nodes share, on the verify node's machine
    num_users: int = 1  # of each client: one's texts never draft for another
    slos: tuple[Objectives | None, ...] = (None,)  # what texts are to keep, in turn
    connect_timeout_s: float = inf  # an absence of the verify node that is longer ends the texts that wait for it
    tick_s: float = 0.1  # how often they look at their timers
    # the network
    latency_s: tuple[float, ...] = (0.01,)  # one way
    bytes_per_s: tuple[float, ...] = (inf,)  # of each line, each way
    verify_bytes_per_s: float = inf  # of the verify node's own line, which all share, each way
    drafted_bytes: float = 4.0  # on the wire, for each drafted token
    through_codec: bool = False  # every message is encoded and decoded: slower, and shows what the wire does to it
    faults: Faults = field(default_factory=Faults)
    validate: bool = False  # the verify core looks at all its invariants after every event

    @property
    def num_requests(self) -> int:
        """All that users ask for."""
        if self.arrivals:
            return sum(len(of_client(self.arrivals, client)) for client in range(self.num_clients))
        return self.num_clients * self.num_sessions

    @property
    def core(self) -> CoreSettings:
        """The verify node's settings; what is not said here is as the daemon has it."""
        name = self.policy if isinstance(self.policy, str) else "gradient"
        return CoreSettings(
            policy=name,
            rounds=cast(RoundKind, self.rounds),
            budget=self.budget,
            max_round_tokens=self.max_round_tokens,
            self_draft=self.self_draft,
            is_shared=self.is_shared,
            eta=self.eta,
            weigh_evidence=self.weigh_evidence,
            beta=self.beta,
            max_sessions=self.max_sessions,
            max_client_sessions=self.max_sessions,
            admission=self.admission,
            order=self.order,
        )


def with_faults(settings: Settings, **faults: Any) -> Settings:
    return replace(settings, faults=replace(settings.faults, **faults))


def of_client(values: tuple[T, ...], index: int) -> T:
    return values[index % len(values)]
