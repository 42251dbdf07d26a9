"""Measures how often a draft model draws the token that the target draws, in held-out answers, in the engine that
serves it: `python -m training.smollm2 measure`.

The target is not computed again. Its draws are among its likeliest tokens, which are stored with the answers; all
others count as one that no draft model draws. So the shares at temperature 1 are too small by 0.01 or so.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goodspeed.engine import engines
from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.exact.noise import match_noise
from goodspeed.exact.sampling import SamplingBatch, choose, to_probs
from goodspeed.wire.messages import Sampling
from training.smollm2.stored import Answer

NUM_PAGES = 80
"""For one text of 2,560 tokens."""


def agreement(draft: Checkpoint, answers: Sequence[Answer], temperature: float) -> dict[str, dict[str, Any]]:
    """Returns what the answers show that were written at a temperature, 0 or 1, by domain, and of "all".

    match: share of positions that agree by the match rule; ratio: mean of 1 - total variation; depths: of each token
    of a pass, the share that agrees where those before do; accepted: how many tokens of a pass agree.
    """
    engine = engines.start(draft, num_pages=NUM_PAGES)
    sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros(3, draft.num_parallel, dtype=torch.float64))
    shared: dict[str, float] = defaultdict(float)
    for seed, answer in enumerate(answers):
        if answer.temperature == temperature:
            counts, ratio = _counts(_logits(engine, answer), answer, Sampling(temperature=temperature, seed=seed))
            for name in (answer.domain, "all"):
                sums[name] += counts
                shared[name] += ratio
    return {name: _shares(own, shared[name]) for name, own in sums.items()}


def _shares(counts: Tensor, shared: float) -> dict[str, Any]:
    agreed, reached, every = counts
    first, ratio = float(agreed[0] / every[0]), shared / float(every[0])
    depths = [round(share, 3) for share in (agreed / reached.clamp(min=1)).tolist()]
    accepted = float((agreed / every.clamp(min=1)).sum())
    return {"match": round(first, 3), "ratio": round(ratio, 3), "depths": depths, "accepted": round(accepted, 3)}


def _logits(engine: Engine, answer: Answer) -> Tensor:
    """Returns the logits [num_tokens, num_parallel, vocab] at the place of each token of the answer: of this token, and
    of those after it, by masks."""
    number = engine.checkpoint.num_parallel
    texts = [answer.prompt.tolist(), *([token] for token in answer.tokens.tolist()[:-1])]
    found = [engine.forward([Chunk("text", text, number, num_masks=number - 1)]) for text in texts]
    engine.pool.free("text")
    return torch.stack(found)


def _counts(logits: Tensor, answer: Answer, sampling: Sampling) -> tuple[Tensor, float]:
    """Returns by depth how many tokens agree and so do those before, before how many all agree, and how many there
    are [3, num_parallel]; and the sum of shared probability of first tokens."""
    count, number = len(answer.tokens), logits.shape[1]
    agrees, counts, shared = torch.ones(count, dtype=torch.bool), torch.zeros(3, number, dtype=torch.float64), 0.0
    for depth in range(min(number, count)):
        reached = agrees[: count - depth]
        same, ratio = _compared(logits[: count - depth, depth], answer, depth, sampling)
        agrees = reached & same
        counts[:, depth] = torch.stack([agrees.sum(), reached.sum(), torch.tensor(count - depth)])
        shared = shared if depth else ratio
    return counts, shared


def _compared(logits: Tensor, answer: Answer, skipped: int, sampling: Sampling) -> tuple[Tensor, float]:
    """Returns which draws [num_tokens - skipped] equal the target's, and the sum of shared probability.

    logits: of the answer's tokens from number `skipped` on.
    """
    count, first = len(logits), len(answer.prompt) + skipped
    positions = torch.arange(first, first + count)
    batch = SamplingBatch.of([sampling], [count])
    drawn, ids = choose(logits, batch, positions), torch.from_numpy(answer.likely[skipped:].astype(np.int64))
    if sampling.temperature == 0:
        same = drawn == ids[:, 0]
        return same, float(same.sum())
    probs = torch.from_numpy(answer.log_probs[skipped:].astype(np.float32)).exp()  # [count, NUM_LIKELY]
    noise = match_noise(batch.seeds, positions, logits.shape[-1] + 1)  # the last column is all others'
    rest = (1 - probs.sum(-1, keepdim=True)).clamp(min=0)
    scores = torch.cat((probs / noise.gather(1, ids), rest / noise[:, -1:]), 1)
    of_target = torch.cat((ids, torch.full((count, 1), -1)), 1).gather(1, scores.argmax(-1, keepdim=True))[:, 0]
    shared = torch.minimum(probs, to_probs(logits, batch).gather(1, ids)).sum()
    return drawn == of_target, float(shared)
