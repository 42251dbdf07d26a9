"""The settings of a `VerifyCore`, and the `Welcome` to draft nodes that follows from them."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from goodspeed.errors import ConfigError
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.handshake import VERSION, Welcome
from verify_node.scheduler.orders import ORDERS
from verify_node.scheduler.round import RoundLimits

RoundKind: TypeAlias = Literal["continuous", "barrier"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """The settings of the verify node's rules. The defaults are those of `goodspeed-verify`."""

    policy: str = "gradient"
    rounds: RoundKind = "continuous"  # barrier: rounds wait for all drafts, and verify them whole, as in the paper
    budget: int = 24  # C: drafted tokens in one round
    max_round_tokens: int = 512  # all tokens in one forward pass; more than the budget
    self_draft: bool = True  # draft from sessions' own texts, in continuous rounds
    is_shared: bool = True  # draft nodes may run on this machine, and compete for it
    drafts_first: bool = False  # then their models draft at any load until compared: they rarely slow a GPU
    has_draft_model: bool = False  # the verify node drafts with a model, too; not where rounds are barriers
    eta: float = 0.1  # Eq. (3)
    weigh_evidence: bool = True
    beta: float = 0.1  # Eq. (4)
    max_sessions: int = 1024
    max_client_sessions: int = 64
    heartbeat_s: float = 1.0
    lease_s: float = 3.0
    tiers: tuple[Objectives, ...] = ()  # tiers that a text may request by name
    admission: str | None = None  # admission policy for promises; None: see `admits`
    order: str = "fcfs"  # preemption order when pages are short, a name of `ORDERS`

    def __post_init__(self) -> None:
        if self.max_round_tokens <= self.budget:
            raise ConfigError(
                f"rounds of {self.max_round_tokens} tokens leave no room beside a budget of {self.budget}"
            )
        ORDERS.find(self.order)()  # raises
        if self.has_draft_model and self.is_barrier:
            raise ConfigError(
                "--draft-model needs rounds that do not wait for drafts, unlike the rounds of --preset paper; "
                "omit one of the two"
            )
        if self.admission not in (None, "none") and self.is_barrier:
            raise ConfigError(
                f"--admission {self.admission} needs rounds that wait for no draft; give none there, or no --preset"
            )

    @property
    def admits(self) -> str:
        """The admission policy, one of `goodspeed.slo.admit.ADMISSION`."""
        if self.admission is not None:
            return self.admission
        return "dp" if self.tiers and not self.is_barrier else "none"

    @property
    def is_barrier(self) -> bool:
        return self.rounds == "barrier"

    @property
    def limits(self) -> RoundLimits:
        return RoundLimits(self.budget, self.max_round_tokens)

    def welcome(self, **fields: Any) -> Welcome:
        """Builds the Welcome for draft nodes. fields: all that do not follow from the settings."""
        return Welcome(
            version=VERSION,
            heartbeat_s=self.heartbeat_s,
            lease_s=self.lease_s,
            promises=self.admits != "none",
            **fields,
        )


DEFAULTS = CoreSettings()
