"""Trains the draft model to give the target's likeliest tokens their probabilities, in the target's own answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from goodspeed.engine.gguf.pruned_vocabulary import KeptTokens
from training.smollm2.stored import Answer

BLOCK = 2560
"""Tokens of a step, prompts included."""

BEGINNING, PROMPTS = 26, (80, 80, 80, 226, 1600)
"""Tokens of a prompt that are seen: its beginning, which the chat template gives all prompts, and so many last ones.
Every fifth pass over the answers sees long prompts, since a draft is made after whatever was asked."""

ROWS = 256
"""Rows whose probabilities of all kept tokens are held at once."""

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
        labels = kept.columns[np.concatenate([answer.likely for answer in answers]).astype(np.int64)]
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
    inputs = hidden[step.places], model.lm_head.weight, step.labels, step.wanted
    found: Tensor = _CrossEntropy.apply(*inputs)  # type: ignore[no-untyped-call]
    return found


class _CrossEntropy(torch.autograd.Function):
    """The loss of an output layer, with its gradients, for some rows at a time: all rows' probabilities would not stay
    in the cache, and writing and reading them again took a third of a step."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, wanted: Tensor) -> Tensor:
        """hidden: [num_tokens, hidden], weight: [num_kept, hidden], labels and wanted: `Step`."""
        narrow, rows = weight.bfloat16(), hidden.bfloat16()
        to_hidden, to_weight, total = torch.empty_like(hidden), torch.zeros_like(weight), hidden.new_zeros(())
        share = 1 / (labels >= 0).any(1).sum().clamp(min=1)
        for some in torch.split(torch.arange(len(rows)), ROWS):
            logits = functional.linear(rows[some], narrow).float()
            sums, chosen = logits.logsumexp(-1, keepdim=True), labels[some].clamp(min=0)
            total += (wanted[some] * (sums - logits.gather(1, chosen))).sum()
            slope = logits.sub_(sums).exp_().mul_(wanted[some].sum(1, keepdim=True))
            slope = slope.scatter_add_(1, chosen, -wanted[some]).mul_(share).bfloat16()
            to_hidden[some] = (slope @ narrow).to(hidden.dtype)
            to_weight += slope.T @ rows[some]
        ctx.save_for_backward(to_hidden, to_weight)
        return total * share

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_hidden, to_weight = ctx.saved_tensors
        return to_hidden * slopes[0], to_weight * slopes[0], None, None


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
