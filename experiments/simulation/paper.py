"""The paper's testbed as worlds: Table I's settings, eight domains, and draft nodes that are alike or not.

The paper gives models, GPUs, budgets and lengths of texts. Acceptance and the network it does not give: for its eight
data sets stand the eight domains of a recording, and the recording's first two draft models for the family's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from experiments.simulation.presets import FAMILIES, slower
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.texts.ngrams import NgramKind
from experiments.simulation.texts.recorded import RecordedTexts
from goodspeed.errors import ConfigError

POLICIES = ("gradient", "fixed", "random", "plain")
"""`fixed` never gives more than C/N, whoever has finished. `plain` is decoding without drafts."""


def compared(own: Sequence[str]) -> tuple[str, ...]:
    """Returns POLICIES, and the user's own, each once."""
    return tuple(dict.fromkeys((*POLICIES, *own)))


@dataclass(frozen=True)
class Row:
    """One row of Table I: how many draft nodes with which of the family's draft models in turn, budget, and tokens."""

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
    """Draft nodes and lines; client i takes entry i modulo the length."""

    slower: tuple[float, ...] = (1.0,)  # times an L4's time
    latency_s: tuple[float, ...] = (0.001,)  # one way
    alpha: tuple[float, ...] = ()  # acceptance rates; (): as recorded
    bytes_per_s: float = 1.25e9  # of each draft node's line: 10 Gbit/s
    verify_bytes_per_s: float = 1.25e9  # of the line that they share


@dataclass(frozen=True)
class Way:
    """A way of drafting under the default policy with continuous rounds, and by the match rule."""

    has_model: bool = False
    ngrams: NgramKind = "off"  # of the draft nodes
    self_draft: bool = False
    drafts: bool = True


WAYS = {
    "plain": Way(drafts=False),
    "model": Way(has_model=True),
    "n-gram, own text": Way(ngrams="own", self_draft=True),
    "n-gram": Way(ngrams="history", self_draft=True),
    "n-gram + model": Way(has_model=True, ngrams="history", self_draft=True),
}
"""Without `own text` indexes have other texts of the client's domain. With n-grams the verify node drafts, too, from
sessions' own texts."""


def serving(
    row: Row, nodes: Nodes, way: str, *, temperature: float, num_texts: int, seed: int, recordings: str = ""
) -> Settings:
    """A setting of Table I with the default settings, drafted for in one of the `WAYS`. ConfigError for rates of
    acceptance, which have no texts."""
    if nodes.alpha:
        raise ConfigError("clients with rates of acceptance have no texts to serve; give `temperatures = []`")
    chosen = WAYS[way]
    make = partial(world, row, nodes, rounds="continuous", wire="match", num_texts=num_texts, seed=seed)
    return replace(
        make(policy="gradient" if chosen.drafts else "plain", temperature=temperature, recordings=recordings),
        ngrams=(chosen.ngrams,),
        has_model=(chosen.has_model or not chosen.drafts,),
        self_draft=chosen.self_draft,
        replays_own=chosen.self_draft,
    )


def world(
    row: Row,
    nodes: Nodes,
    *,
    policy: str,
    rounds: str,
    wire: str,
    num_texts: int,
    seed: int,
    temperature: float = 1.0,
    recordings: str = "",
) -> Settings:
    """Every client has as many tokens to write. temperature: of the recorded texts; what agreed under the match rule
    stands for the ratio rule, too. recordings: a file; empty: the shipped one."""
    family = FAMILIES[row.family]
    models = [row.models[index % len(row.models)] for index in range(row.num_clients)]
    factors = [nodes.slower[index % len(nodes.slower)] for index in range(row.num_clients)]
    costs = [slower(family.draft_costs[model], factor) for model, factor in zip(models, factors, strict=True)]
    name = "fixed" if policy == "plain" else policy
    longest = {"plain": 0, "fixed": -(-row.budget // row.num_clients)}
    texts = RecordedTexts(models, temperature, seed, recordings)
    return Settings(
        num_clients=row.num_clients,
        num_sessions=num_texts,
        num_at_once=1,
        stops=0.0,
        sizes=lambda client, number: (texts.text(client, number).prompt_len, row.max_tokens),
        rounds=rounds,
        verification=("match",) if rounds == "continuous" and wire == "match" else PAPER["verification"],
        policy=name,
        policy_seed=seed,
        known_cost=True,
        budget=row.budget,
        max_round_tokens=1024,
        num_pages=1000,
        page_size=16,
        context_len=1024,
        round_cost=family.round_cost,
        max_draft=longest.get(policy, row.budget),
        **({"alpha": nodes.alpha} if nodes.alpha else {"acceptance": texts}),
        draft_cost=tuple(costs),
        latency_s=nodes.latency_s,
        bytes_per_s=(nodes.bytes_per_s,),
        verify_bytes_per_s=nodes.verify_bytes_per_s,
        drafted_bytes=family.drafted_bytes(wire),
    )
