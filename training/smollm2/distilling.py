"""Trains the draft model to give the target's likeliest tokens their probabilities, in the target's own answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from goodspeed.engine.gguf.kept import KeptTokens
from training.smollm2.stored import Answer

BLOCK = 2560
"""Tokens of a step, prompts included."""

BEGINNING, PROMPTS = 26, (80, 80, 80, 80, 226, 1600)
"""Tokens of a prompt that are seen: its beginning, which the chat template gives all prompts, and so many last ones.
A quarter of the steps sees long prompts, since a draft is made after whatever was asked."""

HARD = 0.5
"""Share of a label that is the likeliest token's alone, in answers at temperature 0: no other is accepted there."""


@dataclass(frozen=True)
class Step:
    """Answers in one batch."""

    inputs: Tensor  # [num_answers, length] rows of the embedding
    places: tuple[Tensor, Tensor]  # ([num_tokens], [num_tokens]) in the inputs, before each token of an answer
    labels: Tensor  # [num_tokens, NUM_LIKELY] rows of the output; -1: not kept
    wanted: Tensor  # [num_tokens, NUM_LIKELY] their probabilities

    @classmethod
    def of(cls, answers: Sequence[Answer], kept: KeptTokens, num_prompt: int) -> "Step":
        texts = [np.concatenate((shortened(answer.prompt, num_prompt), answer.tokens)) for answer in answers]
        counts = [len(answer.tokens) for answer in answers]
        inputs = np.zeros((len(texts), max(map(len, texts))), np.int64)
        for row, text in zip(inputs, texts, strict=True):
            row[: len(text)] = kept.nearest[text]
        rows = np.repeat(np.arange(len(texts)), counts)
        columns = [np.arange(len(text) - n - 1, len(text) - 1) for text, n in zip(texts, counts, strict=True)]
        columns_of = kept.columns
        labels = columns_of[np.concatenate([answer.likely for answer in answers]).astype(np.int64)]
        labels[labels == len(kept.tokens)] = -1
        probs = np.exp(np.concatenate([answer.log_probs for answer in answers]).astype(np.float32))
        is_greedy = np.repeat([answer.temperature == 0 for answer in answers], counts)
        places = torch.from_numpy(rows), torch.from_numpy(np.concatenate(columns))
        return cls(
            torch.from_numpy(inputs),
            places,
            torch.from_numpy(labels),
            torch.from_numpy(_wanted(labels, probs, is_greedy)),
        )


def shortened(prompt: np.ndarray, num_prompt: int) -> np.ndarray:
    """Returns the beginning of a prompt and its last tokens."""
    if len(prompt) <= BEGINNING + num_prompt:
        return prompt
    return np.concatenate((prompt[:BEGINNING], prompt[-num_prompt:]))


def loss(model: LlamaForCausalLM, step: Step) -> Tensor:
    """Returns the mean cross-entropy of the kept ones of the target's likeliest tokens."""
    with torch.autocast(step.inputs.device.type, dtype=torch.bfloat16):
        hidden = model.model(input_ids=step.inputs, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[step.places])
    log_probs = logits.float().log_softmax(-1).gather(1, step.labels.clamp(min=0))
    is_known = (step.labels >= 0).any(1)
    found: Tensor = -(step.wanted * log_probs).sum(-1)[is_known].mean()
    return found


def steps(load: Callable[[], Sequence[Answer]], kept: KeptTokens, seed: int) -> Callable[[int], Step]:
    """Returns what gives the step of a number. Whenever all answers were used, they are loaded again: more may have
    been written."""
    random, waiting = Random(seed), list[tuple[list[Answer], int]]()

    def step(number: int) -> Step:
        if not waiting:
            num_prompt = random.choice(PROMPTS)
            waiting.extend((batch, num_prompt) for batch in batches(load(), num_prompt, random))
        answers, num_prompt = waiting.pop()
        return Step.of(answers, kept, num_prompt)

    return step


def batches(answers: Sequence[Answer], num_prompt: int, random: Random) -> list[list[Answer]]:
    """Divides answers into batches of about BLOCK tokens and of about one length, in random order."""

    def length(answer: Answer) -> int:
        return min(len(answer.prompt), BEGINNING + num_prompt) + len(answer.tokens)

    found: list[list[Answer]] = []
    for answer in sorted(answers, key=lambda answer: length(answer) + 30 * random.random()):
        if not found or length(answer) * len(found[-1]) >= BLOCK:
            found.append([])
        found[-1].append(answer)
    random.shuffle(found)
    return found


def _wanted(labels: np.ndarray, probs: np.ndarray, is_greedy: np.ndarray) -> np.ndarray:
    """Returns the probabilities of kept tokens, scaled to 1; half of them the likeliest's in greedy answers."""
    found = np.where(labels >= 0, probs, 0)
    found /= np.maximum(found.sum(-1, keepdims=True), 1e-6)
    hard = np.zeros_like(found)
    hard[:, 0] = labels[:, 0] >= 0
    share = HARD * is_greedy[:, None]
    return ((1 - share) * found + share * hard).astype(np.float32)
