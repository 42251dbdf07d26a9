"""The same model whole and split over two ranks, fed the same: random rounds of prefill, drafts, trees and rollback."""

import random
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.engine.torch.loading import start
from goodspeed.engine.torch.tensor_parallel.joining import RankSettings
from goodspeed.engine.torch.tensor_parallel.ranks import Ranks
from goodspeed.errors import PoolExhausted
from tests.engine.torch.tensor_parallel.worker import LEFT

NUM_KNOWN = 258  # ids of the byte tokenizer
PAGES, PAGE_SIZE = 24, 4
TOLERANCE = 1e-4  # relative to the largest logit, or the largest number in the memory


@dataclass
class World:
    """Both engines, and what happened to them."""

    whole: TorchEngine
    split: TorchEngine
    left: Path  # where rank 1 leaves its keys and values
    largest_difference: float = 0.0
    happened: dict[str, int] = field(default_factory=dict)

    def forward(self, chunks: list[Chunk]) -> None:
        expected, found = (engine.forward(chunks)[:, :NUM_KNOWN] for engine in (self.whole, self.split))
        if expected.numel():
            difference = (expected - found).abs().max() / expected.abs().max()
            self.largest_difference = max(self.largest_difference, float(difference))

    def keep(self, paths: list[TreePath]) -> None:
        self.whole.keep(paths)
        self.split.keep(paths)

    def truncate(self, key: Hashable, length: int) -> None:
        self.whole.pool.truncate(key, length)
        self.split.pool.truncate(key, length)

    def free(self, key: Hashable) -> None:
        self.whole.pool.free(key)
        self.split.pool.free(key)

    def run(self, num_rounds: int, seed: int) -> None:
        """Random rounds of up to four sessions, of which one is preempted when the memory is full."""
        chance = random.Random(seed)
        for _ in range(num_rounds):
            chunks = [self._chunk(chance, key) for key in chance.sample("abcdef", chance.randint(1, 4))]
            try:
                self.forward(chunks)
            except PoolExhausted:
                self._count("preempted")
                self.free(max(self.whole.pool, key=self.whole.pool.length))
                continue
            self._settle(chance, chunks)

    def _chunk(self, chance: random.Random, key: str) -> Chunk:
        length = self.whole.pool.length(key)
        count = chance.choice((1, 1, 1, chance.randint(2, 5), 12 if not length else 1))
        tokens = [chance.randrange(NUM_KNOWN) for _ in range(count)]
        num_nodes = chance.randint(0, count - 1) if chance.random() < 0.5 else 0
        if not num_nodes:
            return Chunk(key, tokens, chance.randint(0, count))
        self._count("tree")
        return Chunk(key, tokens, count, [chance.randint(-1, node - 1) for node in range(num_nodes)])

    def _settle(self, chance: random.Random, chunks: list[Chunk]) -> None:
        """Cuts what was rejected; of a tree a path is kept."""
        paths = []
        for chunk in chunks:
            length = self.whole.pool.length(chunk.key)
            if chunk.parents is not None:
                paths.append(TreePath(chunk.key, length - len(chunk.parents), _path(chance, chunk.parents)))
            elif len(chunk.tokens) > 1 and chance.random() < 0.5:
                self._count("truncated")
                self.truncate(chunk.key, length - chance.randint(0, len(chunk.tokens) - 1))
        self.keep(paths)

    def _count(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    def memory_of_whole(self) -> np.ndarray:
        """Keys and values [num_layers, num_pages, page_size, kv_heads, key + value]."""
        return _stacked(self.whole.memory.pages)

    def memories_of_ranks(self) -> list[np.ndarray]:
        """The same as the ranks have it, after they ended: parts side by side, or of each all heads."""
        parts = [_stacked(self.split.memory.pages), np.load(self.left)]
        return parts if self.has_all_heads else [np.concatenate(parts, axis=3)]

    @property
    def has_all_heads(self) -> bool:
        """True if each rank has all heads; the plans of some models split other layers only."""
        return self.split.memory.shape == self.whole.memory.shape


@contextmanager
def world(folder: Path, left: Path) -> Iterator[World]:
    """The ranks end with the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LEFT, str(left))
        part = RankSettings(model=str(folder), device="cpu", dtype="float32", threads=1)
        ranks = Ranks.start(part, 2, worker="tests.engine.torch.tensor_parallel.worker")
    try:
        with ranks.together():
            loaded = checkpoints.load(str(folder), split=ranks.split)
            split = start(loaded, num_pages=PAGES, page_size=PAGE_SIZE, others=ranks)
        yield World(start(checkpoints.load(str(folder)), num_pages=PAGES, page_size=PAGE_SIZE), split, left)
    finally:
        ranks.close()


def _path(chance: random.Random, parents: Sequence[int]) -> tuple[int, ...]:
    """Nodes of a random path down from a first node; perhaps none."""
    node = chance.choice([*range(len(parents)), -1])
    path = []
    while node != -1:
        path.append(node)
        node = parents[node]
    return tuple(reversed(path))


def _stacked(pages: list[Tensor]) -> np.ndarray:
    return torch.stack(pages).numpy()
