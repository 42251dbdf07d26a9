"""Trees at the end of a chunk: each node's logits are those of its path, and what is kept of a tree never branched."""

import random
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.engine.torch import checkpoints, passes
from goodspeed.engine.torch.attention.trees import Tree
from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.engine.torch.loading import start
from goodspeed.errors import UnsupportedModelError

PROMPT = [72, 101, 108, 108, 111, 3, 4, 5, 6, 7, 8, 9]


@pytest.fixture(scope="module")
def reference(architecture: Path) -> "Reference":
    return Reference(architecture)


class Reference:
    """The same checkpoint, as transformers runs it: whole sequences, no cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(self, tokens: list[int], num_logits: int) -> Tensor:
        logits: Tensor = self.model(torch.tensor([tokens]), use_cache=False).logits
        return logits[0, len(tokens) - num_logits :]

    def engine(self, **options: Any) -> TorchEngine:
        return start(checkpoints.load(str(self.folder)), **options)


def known(logits: Tensor) -> Tensor:
    """Columns of the tokenizer; the byte tokenizer has 258 ids."""
    return logits[:, :258]


def path_to(node: int, parents: list[int]) -> list[int]:
    """The nodes from the base down to this one."""
    path: list[int] = []
    while node != -1:
        path.insert(0, node)
        node = parents[node]
    return path


def expected(reference: Reference, text: list[int], nodes: list[int], parents: list[int]) -> torch.Tensor:
    """Logits after the text, and after each node's path behind it [num_nodes + 1, vocab]."""
    texts = [text, *([*text, *(nodes[one] for one in path_to(node, parents))] for node in range(len(nodes)))]
    return torch.cat([reference.logits(one, 1) for one in texts])


@pytest.mark.parametrize("counts", [(3, 1, 2, 1), (1, 1, 1, 1, 1, 1, 1), (2, 5)])
def test_a_tree_goes_on_in_later_passes_beside_others(reference: Reference, counts: tuple[int, ...]) -> None:
    """And a chain that comes a token at a time meanwhile."""
    engine = reference.engine(num_pages=64, page_size=4)
    nodes, parents = [10, 11, 12, 13, 14, 15, 16], [-1, -1, 0, 0, 2, 1, 4]
    engine.forward([Chunk("a", PROMPT, 0), Chunk("b", PROMPT[:5], 0)])
    wanted, end, other = expected(reference, PROMPT, nodes, parents)[1:], 0, list(PROMPT[:5])
    for count in counts:
        first, end, other = end, end + count, [*other, 40 + end]
        chunks = [Chunk("a", nodes[first:end], count, parents[:end]), Chunk("b", other[-1:], 1)]
        found = engine.forward(chunks)
        torch.testing.assert_close(known(found[:-1]), known(wanted[first:end]), atol=1e-4, rtol=0)
        torch.testing.assert_close(known(found[-1:]), known(reference.logits(other, 1)), atol=1e-4, rtol=0)
    engine.keep([TreePath("a", len(PROMPT), (0, 2, 3, 4, 6))])  # node 0 becomes text, its subtree stays
    found = engine.forward([Chunk("a", [20], 1, [-1, -1, 0, 2, 1])])
    torch.testing.assert_close(known(found), known(reference.logits([*PROMPT, 10, 13, 20], 1)), atol=1e-4, rtol=0)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("page_size", [1, 16])
def test_any_schedule(reference: Reference, seed: int, page_size: int) -> None:
    """Trees, chains and pieces of prompts in one pass, in any order, over contexts of unequal length."""
    rng = random.Random(seed)
    engine = reference.engine(num_pages=1200 // page_size, page_size=page_size)
    cached: dict[Hashable, list[int]] = {}
    for step in range(20):
        if len(cached) < 6:
            cached[step] = []
        chunks = [make_chunk(rng, key) for key in cached if rng.random() < 0.8] or [make_chunk(rng, step)]
        rng.shuffle(chunks)
        found = engine.forward(chunks)
        wanted, paths = [], []
        for chunk in chunks:
            text, parents = cached.setdefault(chunk.key, []), list(chunk.parents or [])
            before = [*text, *chunk.tokens[: len(chunk.tokens) - len(parents)]]
            nodes = list(chunk.tokens[len(chunk.tokens) - len(parents) :])
            wanted.append(expected(reference, before, nodes, parents)[-chunk.num_logits or len(nodes) + 1 :])
            path = path_to(rng.randrange(len(nodes)), parents) if nodes and rng.random() < 0.8 else []
            paths.append(TreePath(chunk.key, len(before), tuple(path)))
            cached[chunk.key] = [*before, *(nodes[node] for node in path)]
        engine.keep(paths)
        torch.testing.assert_close(known(found), known(torch.cat(wanted)), atol=1e-4, rtol=0)


def make_chunk(rng: random.Random, key: Hashable) -> Chunk:
    num_before, num_nodes = rng.choice([1, 1, 1, 4, rng.randint(5, 40)]), rng.choice([0, 0, 1, 3, 8, 20])
    tokens = [rng.randrange(258) for _ in range(num_before + num_nodes)]
    parents = [rng.randint(-1, node - 1) for node in range(num_nodes)] or None
    return Chunk(key, tokens, rng.choice([0, 1, num_nodes + 1]), parents)


def test_a_chain_with_parents_is_computed_as_one_without(reference: Reference) -> None:
    with_parents, without = (reference.engine(num_pages=8) for _ in range(2))
    one = with_parents.forward([Chunk("a", PROMPT, 12, list(range(-1, 6)))])
    other = without.forward([Chunk("a", PROMPT, 12)])
    assert torch.equal(one, other)
    assert Tree.of([-1, 0, 1]) is Tree.of([]) is None


def test_a_failed_pass_with_a_tree_leaves_the_session_as_it_was(reference: Reference) -> None:
    engine = reference.engine(num_pages=8)
    engine.forward([Chunk("a", PROMPT, 0)])
    for parents, why in ([1, -1], "not a tree"), ([-1, 5], "not a tree"), ([-1] * 15, "as many tokens"):
        with pytest.raises(ValueError, match=why):
            engine.forward([Chunk("a", [1, 2, 3], 1, parents)])
        assert engine.pool.length("a") == len(PROMPT)
    with pytest.raises(ValueError, match="one before it"):
        engine.forward([Chunk("b", [1, 2], 1, [-1, -1])])
    assert "b" not in engine.pool


def test_a_window_hides_by_position_and_not_by_row() -> None:
    tree = Tree.of([-1, -1, 1])  # rows 3, 4, 5 after the base in row 2; positions 3, 3, 4
    assert tree is not None
    seen = [(~row).nonzero()[0].tolist() for row in tree.hidden(np.arange(3), 2, 8, window=3)]
    assert seen == [[1, 2, 3], [1, 2, 4], [2, 4, 5]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("broken", ["sees", "depths"])
def test_a_model_whose_trees_are_computed_wrongly_is_refused(broken, dtype, save_checkpoint, monkeypatch):
    """The trial at load would notice that branches see each other, or that nodes are rotated for their rows."""

    def wrong(parents: Sequence[int]) -> Tree | None:
        tree = Tree.of(parents)
        if tree is None:
            return None
        rows = np.arange(1, len(parents) + 1)
        return replace(tree, depths=rows) if broken == "depths" else replace(tree, sees=rows[:, None] >= rows)

    folder = str(save_checkpoint("llama"))
    start(checkpoints.load(folder, dtype=dtype), num_pages=4)
    monkeypatch.setattr(passes, "Tree", SimpleNamespace(of=wrong))
    with pytest.raises(UnsupportedModelError, match="logits differ"):
        start(checkpoints.load(folder, dtype=dtype), num_pages=4)
