"""Cost of rules for logits in a round: bias, penalties, masks and min_p beside the draw that follows them.

Eight sessions with drafts of eight tokens: 72 rows of random logits on one CPU thread, at T = 1, with a vocabulary of
4,096 and of 151,936. Each session has a text of 1,000 tokens (or of 8,000), of which an eighth is its prompt.
`process_s` is `goodspeed.exact.logit_rules.process`, `draw_s` the draw from what it gives. Without rules nothing is
computed; with any all logits are copied once, so `copy` is the least that rules can cost (under the match rule the
target copies only groups of rows with rules among them). Texts are counted beforehand, as both nodes do it. `form` is
a grammar's bits for every row, which are only read here: making them is not in it. Medians.

It takes about half a minute on two cores; about 3 s with --quick.
"""

import random
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.harness import benchmark
from goodspeed.exact.counts import TextCounts
from goodspeed.exact.logit_rules import TextRows, process
from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.wire.generation import LogitRules, TokenBias
from goodspeed.wire.messages import Sampling

NUM_SESSIONS, LENGTH = 8, 8
NUM_ROWS = NUM_SESSIONS * (LENGTH + 1)
RULES = {
    "none": None,
    "copy": LogitRules(),
    "bias": LogitRules(logit_bias=tuple(TokenBias(token, -1.0) for token in range(300))),
    "frequency": LogitRules(presence_penalty=0.5, frequency_penalty=0.5),
    "repetition": LogitRules(repetition_penalty=1.1),
    "min_p": LogitRules(min_p=0.05),
    "banned": None,
    "form": None,
    "all": LogitRules(0.5, 0.5, 1.1, 0.05, tuple(TokenBias(token, -1.0) for token in range(300))),
}


def text_rows(name: str, vocab: int, context_len: int) -> list[TextRows]:
    """The rows of all sessions."""
    rng = random.Random(1)
    found = []
    for _ in range(NUM_SESSIONS):
        text = [min(vocab - 1, int(rng.paretovariate(0.8))) for _ in range(context_len + LENGTH)]
        first = context_len // 8
        drafted = text[context_len:]
        paths = [drafted[:num] for num in range(LENGTH + 1)]
        banned = [(1, 2)] * len(paths) if name in ("banned", "all") else None
        counts = TextCounts.of(text[:first], text[first:context_len])
        words = np.array(rng.choices(range(-(1 << 31), 1 << 31), k=len(paths) * -(-vocab // 32)), np.int32)
        allowed = words.reshape(len(paths), -1) if name in ("form", "all") else None
        found.append(TextRows(paths, RULES[name], 1.0, banned=banned, counts=counts, allowed=allowed))
    return found


def measure(name: str, logits: Tensor, context_len: int, num_times: int) -> dict[str, Any]:
    vocab = logits.shape[-1]
    texts = text_rows(name, vocab, context_len)
    batch, positions = SamplingBatch.of([Sampling(seed=7)] * NUM_ROWS), torch.arange(NUM_ROWS)
    changed = process(logits, texts)
    return {
        "rules": name,
        "vocab": vocab,
        "context_len": context_len,
        "process_s": benchmark.median_s(lambda: process(logits, texts), num_times),
        "draw_s": benchmark.median_s(lambda: choose(changed, batch, positions), num_times),
    }


def main() -> int:
    options = benchmark.parser("logit_rules", __doc__, "once each, and no long texts").parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    benchmark.say(options, f"{'vocabulary':>10} {'text':>6} {'rules':>10} {'process ms':>11} {'draw ms':>8}")
    rows = []
    for vocab in (4096, 151_936):
        logits = torch.randn(NUM_ROWS, vocab) * 3
        for context_len in (1000,) if options.quick else (1000, 8000):
            for name in RULES:
                row = measure(name, logits, context_len, 1 if options.quick else 15)
                rows.append(row)
                told = f"{vocab:>10,} {context_len:>6,} {name:>10}"
                times = f"{1000 * row['process_s']:>11.2f} {1000 * row['draw_s']:>8.1f}"
                benchmark.say(options, told, times)
    benchmark.report(options, {"benchmark": "logit_rules", "num_rows": NUM_ROWS, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
