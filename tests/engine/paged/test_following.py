"""A pass that goes on from the last one is, bit for bit, the pass that is laid out anew."""

import random
from pathlib import Path

import pytest
import torch

from goodspeed.engine import checkpoints
from goodspeed.engine.paged.layout import lay_out
from goodspeed.engine.runner import Chunk, Runner

OTHER = "other"
"""A session whose pass between two others leaves nothing to go on from."""


def make_runner(architecture: Path, page_size: int) -> Runner:
    runner = Runner(checkpoints.load(str(architecture)), num_pages=2000 // page_size, page_size=page_size)
    runner.forward([Chunk(OTHER, [1], 1)])
    return runner


def come_between(runner: Runner) -> None:
    runner.truncate(OTHER, 0)
    runner.forward([Chunk(OTHER, [1], 1)])


def some_chunks(rng: random.Random, runner: Runner, keys: list[int]) -> list[Chunk]:
    """Mostly one token for each of the same sessions; now and then another order, fewer of them, or more tokens."""
    if rng.random() < 0.1:
        rng.shuffle(keys)
    chosen = rng.sample(keys, 3) if rng.random() < 0.1 else keys
    most = 5 if rng.random() < 0.1 else 1
    lengths = [rng.randint(1, most) if runner.pool.length(key) else 20 * key + 1 for key in chosen]
    return [Chunk(key, [rng.randrange(250) for _ in range(n)], 1) for key, n in zip(chosen, lengths, strict=True)]


@pytest.mark.thorough
def test_steps_in_any_schedule(architecture: Path) -> None:
    rng = random.Random(2)
    going_on, anew = make_runner(architecture, 16), make_runner(architecture, 16)
    keys = [0, 1, 2, 3, 9, 10]  # two groups of contexts
    for _ in range(120):
        chunks = some_chunks(rng, going_on, keys)
        come_between(anew)
        assert torch.equal(going_on.forward(chunks), anew.forward(chunks))
        if rng.random() < 0.2:
            key = rng.choice(keys)
            length = going_on.pool.length(key)
            for runner in (going_on, anew):
                runner.truncate(key, max(0, length - 2))


@pytest.mark.thorough
def test_one_session_step_by_step(architecture: Path) -> None:
    """Its pages lie side by side, so they are read in place."""
    going_on, anew = make_runner(architecture, 4), make_runner(architecture, 4)
    for token in range(40):
        come_between(anew)
        chunk = Chunk("a", [token], 1)
        assert torch.equal(going_on.forward([chunk]), anew.forward([chunk]))


def test_what_follows_is_one_token_of_each_session_in_its_pages() -> None:
    tables = [torch.tensor(pages).numpy() for pages in ([7, 2], [5])]
    layout = lay_out([5, 1], [1, 1], tables, page_size=4)
    assert layout.is_followed_by([6, 2], [1, 1])
    again, following = lay_out([6, 2], [1, 1], tables, page_size=4), layout.following()
    for found, expected in ((following.slots, again.slots), (following.positions, again.positions)):
        assert found.tolist() == expected.tolist()
    assert following.starts.tolist() == again.starts.tolist()
    assert not layout.is_followed_by([6, 2], [1, 2])  # two tokens
    assert not layout.is_followed_by([6, 1], [1, 1])  # one was taken back
    assert not lay_out([5, 3], [1, 1], tables, page_size=4).is_followed_by([6, 4], [1, 1])  # begins a page
    assert not lay_out([4, 1], [2, 1], tables, page_size=4).is_followed_by([5, 2], [1, 1])  # after two tokens
