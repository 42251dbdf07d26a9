"""Texts that the embedded target writes from the held-out prompts, many at a time, and another model's logits on them.

Under match a text is a function of target, prompt, temperature and seed, so what any drafts would have brought is found
offline.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from goodspeed.embedded import prompts
from goodspeed.embedded.prompts import Prompt
from goodspeed.engine import checkpoints
from goodspeed.engine.engine import Checkpoint
from goodspeed.engine.runner import Chunk, Runner
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.ngram.index import NgramIndex
from goodspeed.wire.messages import Sampling

TARGET = "tiny-target"
AT_ONCE = 32  # texts in one forward pass


class TargetText(NamedTuple):
    domain: str
    sampling: Sampling
    prompt: tuple[int, ...]
    written: tuple[int, ...]


def write(temperatures: Sequence[float], per_domain: int, num_tokens: int) -> Iterator[TargetText]:
    """Yields the text of each temperature and of each domain's first prompts, of at most num_tokens new tokens."""
    yield from write_after(prompts.load()[: per_domain * prompts.NUM_DOMAINS], temperatures, num_tokens)


def write_after(chosen: Sequence[Prompt], temperatures: Sequence[float], num_tokens: int) -> Iterator[TargetText]:
    """Yields the text of each temperature and prompt, of at most num_tokens new tokens."""
    checkpoint = checkpoints.load(TARGET)
    pages = AT_ONCE * checkpoint.context_len // 16
    runner = Runner(checkpoint, num_pages=pages)
    asked = [(prompt, temperature) for temperature in temperatures for prompt in chosen]
    for first in range(0, len(asked), AT_ONCE):
        yield from _write(checkpoint, runner, asked[first : first + AT_ONCE], num_tokens)


@torch.inference_mode()
def _write(
    checkpoint: Checkpoint, runner: Runner, asked: Sequence[tuple[Prompt, float]], num_tokens: int
) -> list[TargetText]:
    encoded = [tuple(encode_prompt(checkpoint.tokenizer, prompt.prompt)) for prompt, _ in asked]
    samplings = [Sampling(temperature, seed=prompt.seed) for prompt, temperature in asked]
    written: list[list[int]] = [[] for _ in asked]
    chunks = [Chunk(row, encoded[row], 1) for row in range(len(asked))]
    while chunks:
        rows = [int(chunk.key) for chunk in chunks]  # type: ignore[call-overload]
        positions = torch.tensor([len(encoded[row]) + len(written[row]) for row in rows])
        batch = SamplingBatch.of([samplings[row] for row in rows])
        drawn = choose(runner.forward(chunks), batch, positions, num_tokens=checkpoint.num_tokens).tolist()
        chunks = []
        for row, token in zip(rows, drawn, strict=True):
            if token not in checkpoint.eos_ids:
                written[row].append(token)
                if len(written[row]) < num_tokens:
                    chunks.append(Chunk(row, (token,), 1))
    for row in range(len(asked)):
        runner.free(row)
    return [
        TargetText(prompt.domain, sampling, tokens, tuple(new))
        for (prompt, _), sampling, tokens, new in zip(asked, samplings, encoded, written, strict=True)
    ]


def grouped(texts: Iterable[TargetText]) -> list[list[TargetText]]:
    """The texts of each domain at each temperature, in the order in which they come."""
    groups: dict[tuple[str, float], list[TargetText]] = defaultdict(list)
    for text in texts:
        groups[text.domain, text.sampling.temperature].append(text)
    return list(groups.values())


def index_of_others(group: Iterable[TargetText], text: TargetText) -> NgramIndex:
    """An index over all texts of a group but this one."""
    index = NgramIndex()
    for other in group:
        if other is not text:
            index.add(other.prompt + other.written)
    return index


@torch.inference_mode()
def written_logits(checkpoint: Checkpoint, texts: Iterable[TargetText]) -> Iterator[Tensor]:
    """Yields a model's logits before each written token of each text, all before it being the target's.

    Shape: [len(text.written), vocab]. A text has one written token at least.
    """
    runner = Runner(checkpoint, num_pages=checkpoint.context_len // 16)
    for text in texts:
        yield runner.forward([Chunk(0, (text.prompt + text.written)[:-1], len(text.written))])
        runner.free(0)
