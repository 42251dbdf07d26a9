"""Makes the file of recorded proposals (`proposals.py`) from texts that the embedded target writes.

    python -m experiments.simulation.record_proposals

The first texts of every domain, at temperatures 0 and 1, from the held-out prompts of `experiments.benchmarks.ngram`.
*history* is all the other texts of the domain at the same temperature, never the text itself. It takes about two
minutes on one core. The only module of this folder that loads torch.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence

import torch

from draft_node.core.drafts.stream import NGRAM_LENGTH
from experiments.simulation.paper import STAND_INS
from experiments.simulation.texts import proposals
from experiments.simulation.texts.proposals import ModelPath, Proposal, Text
from experiments.simulation.texts.target_texts import TargetText, grouped, index_of_others, write, written_logits
from goodspeed.engine import checkpoints
from goodspeed.exact.confidence import acceptance_probabilities
from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.ngram.drafting import draft
from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.wire import probabilities
from goodspeed.wire.probabilities import FLOOR

TEMPERATURES = (0.0, 1.0)
PER_DOMAIN = 16  # texts that are written, each a part of the others' history
NUM_TOKENS = 150
KEPT = 4  # texts of each domain and temperature that are replayed
SHORTEST = 50
"""Tokens of the shortest text that is replayed: a text of Table I goes through a shorter one several times."""


def record(texts: Iterable[TargetText], kept: int = KEPT) -> list[Text]:
    """Proposals for the first texts of each group that are long enough."""
    chosen = [(group, text) for group in grouped(texts) for text in _long_enough(group)[:kept]]
    paths = {name: model_paths(name, [text for _, text in chosen]) for name in STAND_INS}
    return [
        Text(
            domain=text.domain,
            temperature=text.sampling.temperature,
            seed=text.sampling.seed,
            prompt_len=len(text.prompt),
            own=proposals.joined(_proposals(text, [])),
            history=proposals.joined(_proposals(text, [index_of_others(group, text)])),
            models={name: paths[name][number] for name in STAND_INS},
        )
        for number, (group, text) in enumerate(chosen)
    ]


def _long_enough(group: Sequence[TargetText]) -> list[TargetText]:
    """Returns a domain's texts that are long enough to replay; its longest one if there are none."""
    return [text for text in group if len(text.written) >= SHORTEST] or [max(group, key=lambda one: len(one.written))]


def _proposals(text: TargetText, histories: Sequence[NgramIndex]) -> Iterator[Proposal]:
    """Yields what an index says at each position of a text, of which nothing beyond that position is known to it."""
    tokens, growing = text.prompt + text.written, GrowingText()
    for at in range(len(text.prompt), len(tokens)):
        growing.follow(tokens[:at])
        length = min(NGRAM_LENGTH, len(tokens) - at)
        drafted = draft(growing, histories, length, sampling=text.sampling, least_probability=FLOOR)
        equal = [token == right for token, right in zip(drafted.tokens, tokens[at:], strict=False)]
        num_right = equal.index(False) if False in equal else len(equal)
        yield Proposal(probabilities.encode(drafted.probabilities), num_right)


@torch.inference_mode()
def model_paths(name: str, texts: Sequence[TargetText]) -> list[ModelPath]:
    """A draft model's answers after each position of each text, all before it being the target's."""
    checkpoint = checkpoints.load(name)
    found = []
    for text, logits in zip(texts, written_logits(checkpoint, texts), strict=True):
        num = len(text.written)
        positions = torch.arange(len(text.prompt), len(text.prompt) + num)
        batch = SamplingBatch.of([text.sampling] * num)
        tokens = choose(logits, batch, positions, num_tokens=checkpoint.num_tokens)
        agreed = (tokens == torch.tensor(text.written)).int().tolist()
        codes = probabilities.encode(acceptance_probabilities(logits.softmax(-1), tokens).tolist())
        found.append(ModelPath("".join(map(str, agreed)), proposals.written(codes)))
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.simulation.record_proposals", description="Record what is proposed for texts."
    )
    parser.add_argument("--output", default=proposals.SHIPPED, metavar="FILE")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    texts = record(write(TEMPERATURES, PER_DOMAIN, NUM_TOKENS))
    proposals.save(texts, options.output)
    num_tokens = sum(len(text.models[STAND_INS[0]].agreed) for text in texts)
    print(f"{len(texts)} texts of {num_tokens} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
