"""Measures how often a draft model draws the token that the target draws, in held-out answers, in the engine that
serves it: `python -m training.smollm2 measure`.

The target is not computed again. Its draws are among its likeliest tokens, which are stored with the answers; all
others count as one that no draft model draws. So the shares at temperature 1 are too small by 0.01 or so.
"""

from collections import defaultdict
from collections.abc import Sequence

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

Shares = dict[str, tuple[float, float]]
"""By domain, and "all": the share of positions that agree by the match rule, and the mean of 1 - total variation."""


def agreement(draft: Checkpoint, answers: Sequence[Answer], temperature: float) -> Shares:
    """Returns the shares over the answers that were written at a temperature, 0 or 1."""
    engine = engines.start(draft, num_pages=NUM_PAGES)
    sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros(3, dtype=torch.float64))
    for seed, answer in enumerate(answers):
        if answer.temperature == temperature:
            found = _compared(_logits(engine, answer), answer, Sampling(temperature=temperature, seed=seed))
            for name in (answer.domain, "all"):
                sums[name] += found
    return {name: (float(same / count), float(shared / count)) for name, (same, shared, count) in sums.items()}


def _logits(engine: Engine, answer: Answer) -> Tensor:
    """Returns the logits at the place of each token of the answer."""
    text = [*answer.prompt.tolist(), *answer.tokens.tolist()][:-1]
    found = engine.forward([Chunk("text", text, len(answer.tokens))])
    engine.pool.free("text")
    return found


def _compared(logits: Tensor, answer: Answer, sampling: Sampling) -> Tensor:
    """Returns the sums of equal draws and of shared probability, and the number of positions."""
    count, first = len(logits), len(answer.prompt)
    positions = torch.arange(first, first + count)
    batch = SamplingBatch.of([sampling], [count])
    drawn, ids = choose(logits, batch, positions), torch.from_numpy(answer.likely.astype(np.int64))
    if sampling.temperature == 0:
        same = drawn == ids[:, 0]
        return torch.tensor([same.sum(), same.sum(), count], dtype=torch.float64)
    probs = torch.from_numpy(answer.log_probs.astype(np.float32)).exp()  # [count, NUM_LIKELY]
    noise = match_noise(batch.seeds, positions, logits.shape[-1] + 1)  # the last column is all others'
    rest = (1 - probs.sum(-1, keepdim=True)).clamp(min=0)
    scores = torch.cat((probs / noise.gather(1, ids), rest / noise[:, -1:]), 1)
    of_target = torch.cat((ids, torch.full((count, 1), -1)), 1).gather(1, scores.argmax(-1, keepdim=True))[:, 0]
    shared = torch.minimum(probs, to_probs(logits, batch).gather(1, ids)).sum()
    return torch.tensor([(drawn == of_target).sum(), shared, count], dtype=torch.float64)
