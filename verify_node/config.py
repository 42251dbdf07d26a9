"""The verify node's settings; those made with `option` are also options of `goodspeed-verify`."""

from dataclasses import MISSING, dataclass
from typing import Literal

from goodspeed.errors import ConfigError
from goodspeed.fair import policies
from goodspeed.serving import options
from goodspeed.serving.config import option
from goodspeed.serving.options import MODEL, NETWORK, NodeSettings
from goodspeed.slo.admit import ADMISSION
from goodspeed.slo.objectives import parse_tiers
from goodspeed.wire.endpoints import is_loopback
from verify_node.core.settings import DEFAULTS, CoreSettings, RoundKind
from verify_node.scheduler.orders import ORDERS

PAPER_BETA = 0.5
"""Smoothing step of goodput in the paper's figures."""

LEASE_HEARTBEATS = 3
"""Silent heartbeats after which a draft node loses its sessions: one lost heartbeat must not end them."""

SHARES = 16
"""A client may have this part of many sessions."""

GPU_ROUND_TOKENS = 2048
"""Tokens of a forward pass on a GPU, where prefill of more tokens at once takes little longer."""


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(NodeSettings):
    """See `goodspeed-verify --help`."""

    MOST_USED = ("model", "bind", "http", "device", "key", "enrolled")

    model: str = option(MISSING, MODEL, f"target model: {options.NAMES}", metavar="NAME")
    draft_model: str | None = option(
        None,
        MODEL,
        f"drafts here for texts without a draft of a draft node's model: {options.NAMES}",
        metavar="NAME",
    )
    bind: str = option("tcp://127.0.0.1:5555", NETWORK, "where draft nodes connect", metavar="tcp://HOST:PORT")
    policy: str = options.policy(DEFAULTS.policy)
    preset: str | None = options.preset()
    budget: int | Literal["auto"] | None = option(
        None,
        "rounds",
        "C: drafted tokens verified in a round; auto: the most that make a measured round at most twice as long",
        shown=f"{DEFAULTS.budget}; on a GPU auto",
        minimum=1,
        maximum=1 << 30,
        metavar="N|auto",
    )
    order: str = option(
        DEFAULTS.order,
        "rounds",
        f"who keeps the KV cache when it is short: {', '.join(ORDERS.names)} (laps: LAPS-SD), or your own "
        "(docs/POLICY.md)",
        metavar=options.OWN_RULE,
    )
    slo_tier: tuple[str, ...] = option(
        (),
        "service levels",
        "a service level that requests may name; may be repeated",
        metavar="NAME:ttft=500ms,tpot=50ms,window=10",
    )
    admission: str | None = option(
        None,
        "service levels",
        f"how service levels are promised: {', '.join(ADMISSION.names)} (dp: to the feasible set of highest value; "
        "edf: by deadline), or your own (docs/POLICY.md)",
        shown="dp where there are tiers, else none",
        metavar="NAME|MODULE:FUNCTION",
    )
    max_sessions: int = option(
        DEFAULTS.max_sessions,
        "limits",
        f"sessions open at once; of a client {DEFAULTS.max_client_sessions}, or a 16th if that is more",
        minimum=1,
    )
    tp: int = option(
        1,
        MODEL,
        "processes that share the model, each with a GPU or --threads",
        minimum=1,
        maximum=64,
        metavar="K",
    )
    http: str | None = option(
        None, NETWORK, "serve the live page and /metrics there", shown="no page", metavar="HOST:PORT"
    )
    enrolled: str | None = option(
        None, NETWORK, "public files of draft nodes; re-read", shown="all may connect", metavar="FOLDER"
    )
    peers: str | None = option(
        None, NETWORK, "the replicas of this fleet; re-read", shown="this node alone", metavar="FILE"
    )
    record: bool = option(False, "logging", "with --json: a recording of the run, too")
    heartbeat_s: float = DEFAULTS.heartbeat_s  # seconds between signs of life
    kv_pages: int | None = None  # pages of the KV cache; None: by `memory_fraction`
    max_round_tokens: int | None = None  # tokens of a forward pass, with prefill, beyond the budget; None: by device

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget is None:
            measured = self.is_on_gpu and not self.is_paper
            object.__setattr__(self, "budget", "auto" if measured else DEFAULTS.budget)
        if self.api_key is not None and self.http is None:
            raise ConfigError("--api-key guards what --http serves; give --http HOST:PORT, too, or neither")
        options.check_keys(self.key, self.enrolled, "--enrolled FOLDER", trusted_network=self.trusted_network)
        if self.tp > 1 and self.device not in ("cpu", "cuda"):
            device = self.device.partition(":")[0]
            what = f"--tp {self.tp} takes a GPU for each rank, and --device {self.device} names one"
            raise ConfigError(f"{what}; leave the number away: --device {device}")
        if self.tp > 1 and self.draft_model is not None:
            raise ConfigError(f"--draft-model is not split as --tp {self.tp} splits the target; give one of them")
        policies.load(self.policy)
        ORDERS.load(self.order)
        if self.admission is not None:
            ADMISSION.load(self.admission)
            ADMISSION.find(self.admission)  # raises
        self._core_with(1 if self.budget == "auto" else self.num_drafted, is_shared=True)  # raises

    @property
    def is_on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def is_paper(self) -> bool:
        return self.preset == "paper"

    @property
    def rounds(self) -> RoundKind:
        return "barrier" if self.is_paper else "continuous"

    @property
    def core(self) -> CoreSettings:
        """The settings of the verify node's rules; `auto` must be resolved before (`costs.with_budget`)."""
        return self._core_with(self.num_drafted, is_shared=is_loopback(self.bind))

    def _core_with(self, budget: int, *, is_shared: bool) -> CoreSettings:
        most = GPU_ROUND_TOKENS if self.is_on_gpu else DEFAULTS.max_round_tokens
        return CoreSettings(
            policy=self.policy,
            rounds=self.rounds,
            budget=budget,
            max_round_tokens=self.max_round_tokens or max(most, 4 * budget),
            tiers=tuple(parse_tiers(self.slo_tier).values()),
            admission=self.admission,
            order=self.order,
            has_draft_model=self.draft_model is not None,
            is_shared=is_shared,
            drafts_first=self.is_on_gpu,
            weigh_evidence=not self.is_paper,
            beta=PAPER_BETA if self.is_paper else DEFAULTS.beta,
            max_sessions=self.max_sessions,
            max_client_sessions=max(DEFAULTS.max_client_sessions, self.max_sessions // SHARES),
            heartbeat_s=self.heartbeat_s,
            lease_s=LEASE_HEARTBEATS * self.heartbeat_s,
        )

    @property
    def num_drafted(self) -> int:
        """The budget as a number; `auto` must be resolved before (`costs.with_budget`)."""
        if not isinstance(self.budget, int):
            raise RuntimeError("the budget is still to be measured")
        return self.budget
