"""The paper's testbed as worlds: Table I's settings, eight domains, and draft nodes that are alike or not.

Knows nothing about what is measured in them. The paper gives models, GPUs, budgets and lengths of texts; acceptance
rates and the network it does not, so those are ours, and stated here.
"""

from dataclasses import dataclass
from random import Random

from experiments.simulation.presets import FAMILIES, slower
from experiments.simulation.settings import Settings

DOMAINS = {
    "code": (0.66, 0.71),
    "docs": (0.65, 0.70),
    "math": (0.91, 0.88),
    "sql": (0.81, 0.82),
    "chat": (0.97, 0.98),
    "json": (0.95, 0.96),
    "convert": (0.82, 0.84),
    "story": (0.94, 0.94),
}
"""Acceptance rates with the smaller and the larger draft model: mean min(1, p/q) of the embedded models at temperature
1, as `goodspeed/tiny/MODEL_CARD.md` has them measured. They stand for the paper's eight data sets."""

POLICIES = ("gradient", "gradient (5)", "fixed", "random")
"""`gradient` as it serves by default: it knows what time costs. `gradient (5)` is the paper's, which does not."""


@dataclass(frozen=True)
class Row:
    """One of Table I: how many draft nodes with which of the family's draft models in turn, budget, and tokens."""

    family: str
    num_clients: int
    budget: int
    max_tokens: int
    models: tuple[int, ...]  # 0: the smaller one

    @property
    def name(self) -> str:
        return f"{self.family}, {self.num_clients} clients, C = {self.budget}, {self.max_tokens} tokens"


TABLE_1 = (
    Row("Qwen3", 4, 24, 50, (0,)),
    Row("Qwen3", 4, 28, 50, (0,)),
    Row("Qwen3", 8, 16, 150, (0, 1)),
    Row("Qwen3", 8, 20, 150, (0, 1)),
    Row("Llama 3", 8, 16, 150, (0, 1)),
    Row("Llama 3", 8, 20, 150, (0, 1)),
)


@dataclass(frozen=True)
class Nodes:
    """What the draft nodes are like, and the lines; client i takes entry i modulo the length."""

    slower: tuple[float, ...] = (1.0,)  # times an L4's time
    latency_s: tuple[float, ...] = (0.001,)  # one way
    bytes_per_s: float = 1.25e9  # of each draft node's line: 10 Gbit/s
    verify_bytes_per_s: float = 1.25e9  # of the line that they share


def world(row: Row, nodes: Nodes, *, policy: str, rounds: str, wire: str, num_texts: int, seed: int) -> Settings:
    """Every client has as many tokens to write, with a domain of its own; which one, the seed says."""
    family = FAMILIES[row.family]
    domains = list(DOMAINS.values())
    Random(seed).shuffle(domains)
    models = [row.models[index % len(row.models)] for index in range(row.num_clients)]
    factors = [nodes.slower[index % len(nodes.slower)] for index in range(row.num_clients)]
    costs = [slower(family.draft_costs[model], factor) for model, factor in zip(models, factors, strict=True)]
    name = policy.removesuffix(" (5)")
    return Settings(
        num_clients=row.num_clients,
        num_sessions=num_texts,
        num_at_once=1,
        min_tokens=row.max_tokens,
        max_tokens=row.max_tokens,
        stops=0.0,
        prompt_len=100,
        rounds=rounds,
        policy=name,
        policy_options={"seed": seed} if name == "random" else {},
        weighs_time=policy == "gradient",
        known_cost=True,
        budget=row.budget,
        max_round_tokens=1024,
        num_pages=1000,
        page_size=16,
        context_len=1024,
        round_cost=family.round_cost,
        max_draft=-(-row.budget // row.num_clients) if name == "fixed" else row.budget,
        alpha=tuple(domains[index % len(domains)][model] for index, model in enumerate(models)),
        draft_cost=tuple(costs),
        draft_ahead=rounds == "continuous",
        latency_s=nodes.latency_s,
        bytes_per_s=(nodes.bytes_per_s,),
        verify_bytes_per_s=nodes.verify_bytes_per_s,
        drafted_bytes=family.drafted_bytes(wire),
    )
