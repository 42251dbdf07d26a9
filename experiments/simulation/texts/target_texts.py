"""Texts that a target writes, many at a time.

Under match a text is a function of target, prompt, temperature and seed, so what any drafts would have brought is found
offline.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from goodspeed.embedded.prompts import Prompt
from goodspeed.engine import engines
from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.ngram.index import NgramIndex
from goodspeed.wire.messages import Sampling

AT_ONCE = 32  # texts in one forward pass
PAGE_SIZE = 32


class TargetText(NamedTuple):
    domain: str
    sampling: Sampling
    prompt: tuple[int, ...]
    written: tuple[int, ...] = ()
    ended: bool = False  # by itself, before it had as many tokens as were wanted
    id: str = ""  # of its prompt


def asked(checkpoint: Checkpoint, chosen: Iterable[Prompt], temperatures: Sequence[float]) -> list[TargetText]:
    """Returns the texts that are to be written after these plain prompts, at each of the temperatures."""
    encoded = [(one, tuple(encode_prompt(checkpoint.tokenizer, one.prompt))) for one in chosen]
    return [
        TargetText(one.domain, Sampling(temperature, seed=one.seed), ids)
        for temperature in temperatures
        for one, ids in encoded
    ]


def answers(checkpoint: Checkpoint, wanted: Sequence[TargetText], num_tokens: int) -> Iterator[TargetText]:
    """Yields the texts, in their order, with at most num_tokens tokens that this target writes."""
    engine, done = start(checkpoint, AT_ONCE, wanted, num_tokens), dict[int, TargetText]()
    waiting, written = deque(range(len(wanted))), dict[int, list[int]]()
    for place in range(len(wanted)):
        while place not in done:
            while waiting and len(written) < AT_ONCE:
                written[waiting.popleft()] = []
            rows = [Chunk(row, new[-1:] or wanted[row].prompt, 1) for row, new in written.items()]
            for row, token in zip(list(written), _drawn(engine, wanted, written, rows), strict=True):
                ends = token in checkpoint.eos_ids
                if not ends:
                    written[row].append(token)
                if ends or len(written[row]) == num_tokens:
                    done[row] = wanted[row]._replace(written=tuple(written.pop(row)), ended=ends)
                    engine.pool.free(row)
        yield done.pop(place)


def start(checkpoint: Checkpoint, at_once: int, texts: Sequence[TargetText], more_tokens: int) -> Engine:
    """Starts an engine with pages for so many texts at once, each longer by more_tokens."""
    longest = max(len(text.prompt) + len(text.written) for text in texts) + more_tokens
    return engines.start(checkpoint, num_pages=at_once * -(-longest // PAGE_SIZE), page_size=PAGE_SIZE)


@torch.inference_mode()
def _drawn(
    engine: Engine, wanted: Sequence[TargetText], written: dict[int, list[int]], rows: Sequence[Chunk]
) -> list[int]:
    positions = torch.tensor([len(wanted[row].prompt) + len(new) for row, new in written.items()])
    batch = SamplingBatch.of([wanted[row].sampling for row in written])
    drawn: list[int] = choose(engine.forward(rows), batch, positions, num_tokens=engine.checkpoint.num_tokens).tolist()
    return drawn


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
