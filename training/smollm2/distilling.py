"""Trains the draft model to give the target's likeliest tokens their probabilities, in the target's own answers.

It drafts several tokens in one forward pass (PARD, arXiv 2504.18583): after a text's position n come masks, of which
the first predicts token n + 2, the next n + 3. A step trains masks after many positions at once. They lie behind the
text, and each sees the text up to its own n and the masks before it. The deeper masks are, the more are left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from goodspeed.engine.gguf.pruned_vocabulary import KeptTokens
from training.smollm2 import draft
from training.smollm2.stored import Answer

BLOCK = 2560
"""Tokens of a step, prompts included."""

BEGINNING, PROMPTS = 26, (80, 80, 80, 226, 1600)
"""Tokens of a prompt that are seen: its beginning, which the chat template gives all prompts, and so many last ones.
Every fifth pass over the answers sees long prompts, since a draft is made after whatever was asked."""

ROWS = 256
"""Rows whose probabilities of all kept tokens are held at once."""

MASKED = 0.7
"""Share of the masks of one depth that have a mask behind them."""

HARD = 0.5
"""Share of a label that is the likeliest token's alone, in answers at temperature 0: no other is accepted there."""


@dataclass(frozen=True)
class Masks:
    """The masks after each text: of each, the position n that it follows, and its depth from 1 on."""

    after: NDArray[np.int64]  # [num_texts, most]
    depths: NDArray[np.int64]  # [num_texts, most]
    tokens: NDArray[np.int64]  # [num_texts, most] number of the token that it predicts, of all answers'; -1: no mask

    @classmethod
    def drawn(cls, firsts: Sequence[int], counts: Sequence[int], random: np.random.Generator) -> "Masks":
        """Draws masks after the positions before answers' tokens. firsts, counts: of each text, the position before
        its first token of an answer, and the number of these tokens."""
        starts = np.concatenate(([0], np.cumsum(counts)))
        found = [_chains(count, random) for count in counts]
        most = max(len(index) for index, _ in found)
        after, depths, tokens = np.zeros((3, len(counts), most), np.int64) + np.array([0, 1, -1])[:, None, None]
        for row, (index, depth) in enumerate(found):
            own = row, slice(len(index))
            after[own], depths[own], tokens[own] = firsts[row] + index, depth, starts[row] + index + depth
        return cls(after, depths, tokens)

    def seen(self, length: int) -> NDArray[np.bool_]:
        """Returns what each row sees [num_texts, 1, length + most, length + most]; a text sees what is before it."""
        num_texts, most = self.after.shape
        text = np.broadcast_to(np.arange(length), (num_texts, length))
        chain = np.concatenate((np.full_like(text, -1), self.after), 1)
        depths = np.concatenate((np.zeros_like(text), self.depths), 1)
        seen = np.empty((num_texts, 1, length + most, length + most), bool)
        np.greater_equal(np.concatenate((text, self.after), 1)[:, None, :, None], np.arange(length), seen[..., :length])
        seen[:, 0, :, length:] = chain[:, :, None] == self.after[:, None]
        seen[:, 0, :, length:] &= depths[:, :, None] >= self.depths[:, None]
        return seen


def _chains(count: int, random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draws the number of masks before each of an answer's tokens, so many that what they predict lies in the answer;
    returns of each mask the token's number and the depth."""
    every = np.arange(1, draft.NUM_PARALLEL)
    deepest = (random.random((count, 1)) < MASKED**every).sum(1)
    index, place = np.nonzero(every <= np.minimum(deepest, count - 1 - np.arange(count))[:, None])
    return index, every[place]


@dataclass(frozen=True)
class Step:
    """Answers in one batch, and masks."""

    inputs: Tensor  # [num_answers, length + num_masks] rows of the embedding
    positions: Tensor  # [num_answers, length + num_masks]
    seen: Tensor  # [num_answers, 1, length + num_masks, length + num_masks] True: attends to
    places: tuple[Tensor, Tensor]  # ([num_tokens], [num_tokens]) in the inputs, of what predicts a token
    labels: Tensor  # [num_tokens, NUM_LIKELY] rows of the output; -1: not kept
    wanted: Tensor  # [num_tokens, NUM_LIKELY] their probabilities

    @classmethod
    def of(cls, answers: Sequence[Answer], kept: KeptTokens, num_prompt: int, random: np.random.Generator) -> "Step":
        texts = [np.concatenate((shortened(answer.prompt, num_prompt), answer.tokens)) for answer in answers]
        counts, length = [len(answer.tokens) for answer in answers], max(map(len, texts))
        firsts = [len(text) - count - 1 for text, count in zip(texts, counts, strict=True)]
        masks = Masks.drawn(firsts, counts, random)
        inputs = np.full((len(texts), length + masks.after.shape[1]), kept.nearest[draft.MASK])
        for row, text in zip(inputs, texts, strict=True):
            row[: len(text)] = kept.nearest[text]
        positions = np.concatenate(
            (np.broadcast_to(np.arange(length), (len(texts), length)), masks.after + masks.depths), 1
        )
        of_text, place = np.nonzero(masks.tokens >= 0)
        rows = np.concatenate((np.repeat(np.arange(len(texts)), counts), of_text))
        columns = [first + np.arange(count) for first, count in zip(firsts, counts, strict=True)] + [length + place]
        columns_of = kept.columns
        labels = columns_of[np.concatenate([answer.likely for answer in answers]).astype(np.int64)]
        labels[labels == len(kept.tokens)] = -1
        probs = np.exp(np.concatenate([answer.log_probs for answer in answers]).astype(np.float32))
        is_greedy = np.repeat([answer.temperature == 0 for answer in answers], counts)
        wanted = _wanted(labels, probs, is_greedy)
        masked = masks.tokens[of_text, place]
        return cls(
            torch.from_numpy(inputs),
            torch.from_numpy(positions),
            torch.from_numpy(masks.seen(length)),
            (torch.from_numpy(rows), torch.from_numpy(np.concatenate(columns))),
            torch.from_numpy(np.concatenate((labels, labels[masked]))),
            torch.from_numpy(np.concatenate((wanted, wanted[masked]))),
        )


def shortened(prompt: np.ndarray, num_prompt: int) -> np.ndarray:
    """Returns the beginning of a prompt and its last tokens."""
    if len(prompt) <= BEGINNING + num_prompt:
        return prompt
    return np.concatenate((prompt[:BEGINNING], prompt[-num_prompt:]))


def loss(model: LlamaForCausalLM, step: Step) -> Tensor:
    """Returns the mean cross-entropy of the kept ones of the target's likeliest tokens."""
    with torch.autocast(step.inputs.device.type, dtype=torch.bfloat16):
        seen, positions = step.seen, step.positions
        found = model.model(input_ids=step.inputs, attention_mask=seen, position_ids=positions, use_cache=False)
        hidden = found.last_hidden_state
    inputs = hidden[step.places], model.lm_head.weight, step.labels, step.wanted
    lost: Tensor = _CrossEntropy.apply(*inputs)  # type: ignore[no-untyped-call]
    return lost


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
    random, masked = Random(seed), np.random.default_rng(seed)
    waiting = list[tuple[list[Answer], int]]()

    def step(number: int) -> Step:
        if not waiting:
            num_prompt = random.choice(PROMPTS)
            waiting.extend((batch, num_prompt) for batch in batches(load(), num_prompt, random))
        answers, num_prompt = waiting.pop()
        return Step.of(answers, kept, num_prompt, masked)

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
