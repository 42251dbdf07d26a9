"""The ways of serving that `emulated` compares, and the same ways, texts and hardware in the simulation.

The setting is one of Table I, as in `experiments/table1.py`. Client i has the family's draft models in turn, and writes
recorded texts of one domain after the other, beginning with another one than its neighbours. Which texts these are
the seed says, so the nodes are asked for exactly those that the simulation replays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from experiments.benchmarks.load.ways import Text
from experiments.simulation.accounts import run
from experiments.simulation.paper import TABLE_1, Nodes, serving
from experiments.simulation.presets import FAMILIES
from experiments.simulation.settings import PAPER
from experiments.simulation.texts import proposals
from experiments.simulation.texts.recorded import RecordedTexts
from goodspeed.embedded import prompts
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.engine.torch import checkpoints
from goodspeed.wire.fields import MAX_DRAFT
from verify_node.config import PAPER_BETA

SETTING = TABLE_1[2]  # Qwen3-14B on an H100; 0.6B and 1.7B in turn on L4s; C = 16
FAMILY = FAMILIES[SETTING.family]

NEAR = Nodes(latency_s=(0.0,), bytes_per_s=float("inf"), verify_bytes_per_s=float("inf"))
"""The network of one machine, beside passes that take a multiple of their time."""

Delivered = Sequence[tuple[float, int]]
"""Of one client: seconds since all began, and the tokens that came then."""


@dataclass(frozen=True)
class Way:
    """A way of serving: the nodes' options, whether anybody drafts, and how the simulated world differs."""

    verify: tuple[str, ...] = ()
    draft: tuple[str, ...] = ("--history=off",)
    drafts: bool = True
    simulated: dict[str, Any] = field(default_factory=dict)
    is_exact: bool = True  # a text depends on its seed alone

    @property
    def nodes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Ways with the same options share their nodes."""
        return self.verify, self.draft


PRESET = "--preset=paper"
AS_PAPER = PAPER | {"self_draft": False, "ngrams": ("off",), "weigh_evidence": False, "beta": PAPER_BETA}

WAYS = {
    "default": Way(),
    "none": Way(drafts=False),
    "paper": Way((PRESET,), ("--history=off", PRESET), simulated=AS_PAPER, is_exact=False),
    "fixed": Way(("--policy=fixed",), simulated={"policy": "fixed"}),
}


class Turns(RecordedTexts):
    """Recorded texts, of which every client writes one of each domain in turn."""

    def __init__(self, seed: int, recordings: str) -> None:
        models = SETTING.models
        super().__init__(models * (prompts.NUM_DOMAINS // len(models)), 1.0, seed, recordings)

    def text(self, client: int, number: int) -> proposals.Text:
        return super().text((client + number) % prompts.NUM_DOMAINS, number)


def wanted(num_clients: int, num_texts: int, seed: int, recordings: str) -> list[list[Text]]:
    """The texts of each client, of a file of recorded ones."""
    texts = Turns(seed, recordings)
    return [[_prompt_of(texts.text(client, number)) for number in range(num_texts)] for client in range(num_clients)]


def _prompt_of(text: proposals.Text) -> Text:
    return Text(_prompts()[text.domain, text.seed], text.seed)


@cache
def _prompts() -> dict[tuple[str, int], list[int]]:
    tokenizer = checkpoints.load_vocabulary("tiny-target").tokenizer
    return {(one.domain, one.seed): encode_prompt(tokenizer, one.prompt) for one in prompts.load()}


def measures(clients: Sequence[Delivered]) -> dict[str, float]:
    """Tokens per second: of each client until it has all, summed, as in `table1`; of all until the last client is done;
    and of all while every client is active."""
    done = [own[-1][0] for own in clients]
    totals = [sum(num for _, num in own) for own in clients]
    first = min(done)
    return {
        "own": sum(total / seconds for total, seconds in zip(totals, done, strict=True)),
        "until_last": sum(totals) / max(done),
        "all_active": sum(num for own in clients for at, num in own if at <= first) / first,
    }


def simulate(
    way: Way, num_clients: int, num_texts: int, num_tokens: int, seed: int, recordings: str
) -> list[Delivered]:
    """Returns what each client gets in the simulation, in seconds of the emulated hardware."""
    row, texts = replace(SETTING, num_clients=num_clients, max_tokens=num_tokens), Turns(seed, recordings)
    source = "n-gram, own text" if way.drafts else "plain"
    world = serving(row, NEAR, source, temperature=1.0, num_texts=num_texts, seed=seed, recordings=recordings)
    drafting: dict[str, Any] = {"has_model": (True,), "max_draft": MAX_DRAFT} if way.drafts else {}
    settings = replace(
        world,
        acceptance=texts,
        sizes=lambda client, number: (texts.text(client, number).prompt_len, row.max_tokens),
        **(drafting | way.simulated),
    )
    ran = run(settings, seed)
    return [[(seen.at, seen.num_tokens) for seen in ran.client_verdicts(client)] for client in range(num_clients)]
