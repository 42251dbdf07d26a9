"""The verify node's settings; each is also an option of `goodspeed-verify`."""

from dataclasses import dataclass
from typing import Any, Literal

from goodspeed import admission
from goodspeed.errors import ConfigError
from goodspeed.serving import model_options, options
from goodspeed.serving.config import Settings, option
from goodspeed.slo.objectives import parse_tiers
from goodspeed.wire.endpoints import is_loopback
from verify_node.core.settings import DEFAULTS, CoreSettings, PolicySettings, Rounds, check_round_tokens
from verify_node.scheduler.preempt import ORDERS

PAPER_BETA = 0.5
"""The smoothing step of goodput in the paper's figures."""

LEASE_HEARTBEATS = 3
"""A draft node that is silent for so many heartbeats loses its sessions: one lost heartbeat must not end them."""


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(Settings):
    """See `goodspeed-verify --help`."""

    MOST_USED = ("model", "bind", "http", "device", "key", "enrolled")

    model: str = model_options.model("target model: ")
    bind: str = option(
        "tcp://127.0.0.1:5555", group="connection", help="where draft nodes connect", metavar="tcp://HOST:PORT"
    )
    policy: str = options.policy(DEFAULTS.policy.name)
    preset: str | None = options.preset()
    budget: int | Literal["auto"] = option(
        DEFAULTS.budget,
        minimum=1,
        maximum=1 << 30,
        group="rounds and budget",
        help="C: drafted tokens verified in a round; auto measures the forward pass and takes the knee",
        metavar="N|auto",
    )
    profile: str | None = option(
        None,
        shown="measured at the start",
        group="rounds and budget",
        help="a file of `goodspeed profile --json FILE`",
        metavar="FILE",
    )
    max_round_tokens: int | None = option(
        None,
        minimum=16,
        maximum=1 << 30,
        shown="512, or 4 x budget if that is more",
        group="rounds and budget",
        help="all tokens of one forward pass: drafted, one more per session, prefill",
        metavar="N",
    )
    slo_tier: tuple[str, ...] = options.slo_tier(
        "service level that a request may ask for by name; draft nodes learn it from here. May be repeated"
    )
    admission: str | None = option(
        None,
        choices=tuple(admission.names()),
        shown="dp where there are tiers, else none",
        group="rounds and budget",
        help="which texts are promised the service level that they ask for: dp picks the most valuable set that can be "
        "kept, edf decides one by one in the order of deadlines, none promises nothing; other texts get what is left",
    )
    max_sessions: int = option(
        DEFAULTS.max_sessions, minimum=1, group="limits", help="sessions open at once", metavar="N"
    )
    max_client_sessions: int = option(
        DEFAULTS.max_client_sessions,
        minimum=1,
        group="limits",
        help="sessions that one client may have open",
        metavar="N",
    )
    order: str = option(
        DEFAULTS.order,
        choices=tuple(ORDERS),
        group="limits",
        help="which texts keep their memory when it is short: those that came first, or are expected to be done "
        "soonest (LAPS-SD). Promised texts always keep theirs",
    )
    memory_fraction: float | None = model_options.memory_fraction()
    kv_pages: int | None = model_options.kv_pages()
    generation_config: str = model_options.generation_config(
        "auto: sampling and stop strings that a request leaves out come from the checkpoint's "
        "generation_config.json (for chats chat_generation_config.json, too); none: the API's defaults"
    )
    device: str = model_options.device()
    dtype: str = model_options.dtype()
    prefix_cache: str = option(
        "on",
        choices=("on", "off"),
        group=model_options.GROUP,
        help="keep the keys and values of what was read, while nobody needs their room, for the same user's texts that "
        "begin alike",
    )
    threads: int | None = model_options.threads()
    tp: int = option(
        1,
        minimum=1,
        maximum=64,
        group="model",
        help="tensor parallelism: processes on this machine that the model is split over, each with a GPU of its own "
        "(--device cuda) or --threads of the CPU",
        metavar="K",
    )
    heartbeat_s: float = option(
        DEFAULTS.heartbeat_s, minimum=0.05, maximum=60.0, group="connection", help="seconds between signs of life"
    )
    http: str | None = option(
        None, shown="no page", group="HTTP", help="serve the live page and /metrics here", metavar="HOST:PORT"
    )
    api_key: str | None = option(
        None,
        shown="no keys: loopback only",
        group="HTTP",
        help="a file of keys, one a line: what --http serves needs one; required beyond loopback",
        metavar="FILE",
    )
    key: str | None = option(
        None,
        shown="no encryption: loopback only",
        group="keys",
        help="this node's secret key, of `goodspeed keygen verify`: encrypts, with --enrolled",
        metavar="FILE",
    )
    enrolled: str | None = option(
        None,
        shown="nobody is asked for a key",
        group="keys",
        help="folder with the public files of the draft nodes that may connect; re-read",
        metavar="FOLDER",
    )
    trusted_network: bool = options.trusted_network()
    peers: str | None = option(
        None,
        shown="this node alone",
        group="fleet",
        help="the replicas of this fleet, this one among them; re-read",
        metavar="FILE",
    )
    replica: str | None = option(
        None,
        shown="found by its key, or by --bind",
        group="fleet",
        help="this node's name in --peers",
        metavar="NAME",
    )
    record: bool = option(
        False, group="logging", help="with --json: also tell what was decided at each drafted position, and when"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget != "auto":
            check_round_tokens(self.round_tokens, self.budget)
        parse_tiers(self.slo_tier)
        model_options.check_memory(self.kv_pages, self.memory_fraction)
        if self.api_key is not None and self.http is None:
            raise ConfigError("--api-key guards what --http serves; give --http HOST:PORT, too, or neither")
        options.check_keys(self.key, self.enrolled, "--enrolled FOLDER", trusted_network=self.trusted_network)
        if self.tp > 1 and self.device not in ("cpu", "cuda"):
            device = self.device.partition(":")[0]
            what = f"--tp {self.tp} takes a GPU for each rank, and --device {self.device} names one"
            raise ConfigError(f"{what}; leave the number away: --device {device}")
        if self.replica is not None and self.peers is None:
            raise ConfigError("--replica is a name in the file of --peers; give --peers FILE, too, or neither")
        self._check_core()

    def _check_core(self) -> None:
        """Raises ConfigError for options of the rules that do not go together, before anything is loaded."""
        CoreSettings(**self._rules)

    @property
    def _rules(self) -> dict[str, Any]:
        """The settings of the rules that do not depend on what is measured."""
        return {
            "policy": self.policy_settings,
            "rounds": self.rounds,
            "tiers": tuple(parse_tiers(self.slo_tier).values()),
            "admission": self.admission,
            "order": self.order,
            "prefix_cache": self.prefix_cache == "on",
        }

    @property
    def is_paper(self) -> bool:
        """Whether rounds are the paper's."""
        return self.preset == "paper"

    @property
    def rounds(self) -> Rounds:
        """What rounds wait for."""
        return "barrier" if self.is_paper else "continuous"

    @property
    def policy_settings(self) -> PolicySettings:
        """The policy with its options."""
        return PolicySettings(name=self.policy)

    @property
    def core(self) -> CoreSettings:
        """The settings of the verify node's rules; `auto` has to be resolved before (`costs.with_budget`)."""
        return CoreSettings(
            **self._rules,
            budget=self.num_drafted,
            max_round_tokens=self.round_tokens,
            is_shared=is_loopback(self.bind),
            weigh_evidence=not self.is_paper,
            beta=PAPER_BETA if self.is_paper else DEFAULTS.beta,
            max_sessions=self.max_sessions,
            max_client_sessions=self.max_client_sessions,
            heartbeat_s=self.heartbeat_s,
            lease_s=LEASE_HEARTBEATS * self.heartbeat_s,
        )

    @property
    def round_tokens(self) -> int:
        """All tokens of one forward pass."""
        return self.max_round_tokens or max(DEFAULTS.max_round_tokens, 4 * self.num_drafted)

    @property
    def num_drafted(self) -> int:
        """The budget as a number; `auto` has to be resolved before (`costs.with_budget`)."""
        if self.budget == "auto":
            raise RuntimeError("the budget is still to be measured")
        return self.budget
