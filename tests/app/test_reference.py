"""One model alone: equal to plain transformers, to itself in chunks, and to the draw done by hand."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from goodspeed.app import reference
from goodspeed.embedded import models, prompts
from goodspeed.engine.base import Checkpoint
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.engine.torch.loading import start
from goodspeed.errors import CheckpointError, ConfigError, PoolExhausted, PromptError
from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.wire.generation import LogitRules, Sampling, TokenBias

torch.set_num_threads(1)
GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return checkpoints.load("tiny-target")


@pytest.fixture(scope="module")
def prompt_ids(checkpoint: Checkpoint) -> list[int]:
    return encode_prompt(checkpoint.tokenizer, prompts.demo()[1].prompt)


@pytest.fixture
def engine(checkpoint: Checkpoint) -> TorchEngine:
    return start(checkpoint, num_pages=128)


@pytest.fixture
def write(checkpoint: Checkpoint, engine: TorchEngine, prompt_ids: list[int]) -> Callable[..., Iterator[int]]:
    """Writes after the prompt; its arguments are those of `reference.generate` behind the prompt."""
    return partial(reference.generate, checkpoint, engine, prompt_ids)


@pytest.fixture(scope="module")
def plain_model() -> Any:
    return AutoModelForCausalLM.from_pretrained(models.path("tiny-target"), dtype=torch.float32).eval()


@pytest.fixture
def theirs(checkpoint: Checkpoint, prompt_ids: list[int], plain_model: Any) -> Callable[..., list[int]]:
    """Returns what plain transformers writes greedily after the prompt, up to its end."""

    def write(max_tokens: int, **options: Any) -> list[int]:
        with torch.inference_mode():
            asked = {"do_sample": False, "max_new_tokens": max_tokens, **options}
            text = plain_model.generate(torch.tensor([prompt_ids]), **asked)[0].tolist()
        return [token for token in text[len(prompt_ids) :] if token not in checkpoint.eos_ids]

    return write


@pytest.mark.thorough
def test_greedy_is_what_transformers_writes(checkpoint, write, theirs) -> None:
    assert list(write(GREEDY, 40, checkpoint.eos_ids)) == theirs(40)


def test_sampling_draws_at_absolute_positions(write, prompt_ids, plain_model) -> None:
    sampling = Sampling(temperature=0.9, top_k=50, top_p=0.95, seed=11)
    ours = list(write(sampling, 12))
    text = prompt_ids + ours
    with torch.inference_mode():
        logits = plain_model(torch.tensor([text])).logits[0, len(prompt_ids) - 1 : -1]
        drawn = choose(logits, SamplingBatch.of([sampling] * 12), torch.arange(len(prompt_ids), len(text)))
    assert ours == drawn.tolist()


@pytest.mark.thorough
def test_a_prompt_in_chunks_is_the_same_prompt(checkpoint, engine, prompt_ids) -> None:
    asked = checkpoint, engine, prompt_ids[:23], Sampling(seed=5), 16
    whole = list(reference.generate(*asked))
    for chunk in (1, 7, 22, 23):
        assert list(reference.generate(*asked, prefill_chunk=chunk)) == whole


def test_a_stop_token_ends_it_and_is_not_given_out(write) -> None:
    free = list(write(GREEDY, 12))
    assert list(write(GREEDY, 12, stop_ids=(free[5],))) == free[: free.index(free[5])]


def test_the_end_of_the_context_ends_it(checkpoint: Checkpoint, engine: TorchEngine) -> None:
    short = replace(checkpoint, context_len=32)
    assert reference.num_wanted(short, [100] * 29, 50) == 3
    assert len(list(reference.generate(short, engine, [100] * 29, GREEDY, 50))) == 3


def test_memory_is_free_again_however_it_ends(checkpoint, engine, prompt_ids, write) -> None:
    for token in write(GREEDY, 4):
        assert token < checkpoint.num_tokens
        assert engine.pool.num_free < engine.pool.num_pages
    assert engine.pool.num_free == engine.pool.num_pages
    left_early = write(GREEDY, 4)
    next(left_early)
    left_early.close()
    assert engine.pool.num_free == engine.pool.num_pages
    small = start(checkpoint, num_pages=2)
    with pytest.raises(PoolExhausted):
        next(reference.generate(checkpoint, small, prompt_ids, GREEDY, 4, prefill_chunk=16))
    assert small.pool.num_free == small.pool.num_pages


def test_what_cannot_be_is_refused(checkpoint: Checkpoint, engine: TorchEngine) -> None:
    with pytest.raises(PromptError, match="empty"):
        reference.generate(checkpoint, engine, [], GREEDY, 4)
    with pytest.raises(PromptError, match="no room"):
        reference.generate(checkpoint, engine, [1] * checkpoint.context_len, GREEDY, 4)
    with pytest.raises(ConfigError, match="max_tokens"):
        reference.generate(checkpoint, engine, [1], GREEDY, 0)
    with pytest.raises(ConfigError, match="leave no token to draw"):
        next(reference.generate(checkpoint, engine, [1], GREEDY, 2, range(checkpoint.num_tokens), min_tokens=1))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=1)])
def test_logits_that_are_not_numbers_end_it_with_an_error(monkeypatch, engine, write, wrong, sampling) -> None:
    logits = torch.full((1, engine.checkpoint.vocab_size), min(0.0, wrong))
    logits[0, 5] = wrong
    text = write(sampling, 4, rules=LogitRules(repetition_penalty=1.3))
    next(text)
    monkeypatch.setattr(engine, "forward", lambda _: logits)
    told = r"^tiny-target: its logits are not numbers at position .*; get the model"
    with pytest.raises(CheckpointError, match=told):
        next(text)


def test_a_repetition_penalty_is_that_of_transformers(checkpoint, write, theirs) -> None:
    ours = list(write(GREEDY, 30, checkpoint.eos_ids, rules=LogitRules(repetition_penalty=1.3)))
    assert ours == theirs(30, repetition_penalty=1.3)
    assert ours != list(write(GREEDY, 30, checkpoint.eos_ids))


def test_a_token_that_is_banned_by_its_bias_is_not_drawn_and_one_that_is_raised_is(write) -> None:
    first = next(write(GREEDY, 1))
    down, up = (LogitRules(logit_bias=(TokenBias(token, bias),)) for token, bias in ((first, -100.0), (77, 100.0)))
    assert next(write(GREEDY, 1, rules=down)) != first
    assert list(write(GREEDY, 3, rules=up)) == [77] * 3
