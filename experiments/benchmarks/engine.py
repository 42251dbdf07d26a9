"""Cost of paging: the engine's packed forward pass beside a plain one of the same tokens without any cache.

Sessions of context 128 verify 1 to 8 tokens each. *plain* is the unmodified model, its own attention, [1, num_tokens]
as one sequence: it remembers nothing. *prepacked* is the same with linear weights laid out as the engine does it on a
CPU (`goodspeed/engine/linear.py`): no serving engine on such weights can be faster by much, so engine / prepacked is
what sessions cost, and it is this that is wanted. *padded* is the usual way to serve a
batch with transformers: a DynamicCache, every draft padded to the longest, cropped afterwards. The four take turns in
every repetition, so that a busy machine slows all of them; ratios are medians of the ratios within a repetition. With
one thread the time is the process's own, without waiting for a core; otherwise it is the clock's.

It takes about 5 minutes on two cores; about 15 s with --quick.
"""

import copy
import random
import statistics
import sys
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

from experiments.benchmarks.nodes.made import made_checkpoint, timed
from experiments.harness import benchmark
from goodspeed.engine.checkpoints import DTYPES
from goodspeed.engine.linear import prepack
from goodspeed.engine.runner import Chunk, Runner

CONTEXT = 128
WAYS = ("plain", "prepacked", "engine", "padded")
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1024, "vocab_size": 4096},
    "wide": {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 2816, "vocab_size": 32000},
    "draft": {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 384, "vocab_size": 4096},
}


@dataclass(frozen=True)
class Case:
    shape: str
    num_layers: int
    num_sessions: int
    most_tokens: int  # a session verifies 1 to this many
    wanted: float | None  # largest ratio to prepacked that we want to see
    repetitions: int
    num_calls: int = 1  # in a row: a draft model takes step after step


CASES = [
    Case("tiny", 8, 8, 8, 1.30, 40),
    Case("tiny", 8, 64, 8, 1.30, 15),
    Case("wide", 8, 8, 8, 1.10, 10),
    Case("wide", 8, 64, 8, 1.10, 5),
    Case("draft", 2, 1, 1, None, 60, 10),
    Case("draft", 2, 8, 1, None, 40, 10),
]
QUICK = [  # as many kinds, with fewer layers: to build and lay out the wide weights takes longer than to measure
    Case("tiny", 2, 8, 8, 1.30, 4),
    Case("tiny", 2, 16, 8, 1.30, 4),
    Case("wide", 1, 4, 8, 1.10, 4),
    Case("draft", 2, 1, 1, None, 4, 2),
    Case("draft", 2, 8, 1, None, 4, 2),
]


class Ways:
    """One model, three ways to take the same tokens through it."""

    def __init__(self, case: Case, device: str, dtype: str) -> None:
        config = LlamaConfig(**SHAPES[case.shape], num_hidden_layers=case.num_layers, max_position_embeddings=2048)
        torch.manual_seed(0)
        self.model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype]).eval().to(device)
        own, self.packed_model = copy.deepcopy(self.model), copy.deepcopy(self.model)
        prepack(self.packed_model)
        ids = config.vocab_size
        self.runner = Runner(
            made_checkpoint(own),
            num_pages=case.num_sessions * 10,
        )
        rng = random.Random(0)
        self.drafts = [make_tokens(rng, rng.randint(1, case.most_tokens), ids) for _ in range(case.num_sessions)]
        contexts = [make_tokens(rng, CONTEXT, ids) for _ in self.drafts]
        self.runner.forward([Chunk(i, tokens, 0) for i, tokens in enumerate(contexts)])
        self.packed = torch.tensor([list(chain(*self.drafts))], device=device)
        self.widest = max(map(len, self.drafts))
        self.rows = torch.tensor([draft + [0] * (self.widest - len(draft)) for draft in self.drafts], device=device)
        self.mask = torch.ones((case.num_sessions, CONTEXT + self.widest), dtype=torch.int64, device=device)
        for row, draft in zip(self.mask, self.drafts, strict=True):
            row[CONTEXT + len(draft) :] = 0
        self.cache = DynamicCache(config=config)
        self.model(torch.tensor(contexts, device=device), past_key_values=self.cache, logits_to_keep=1)

    def plain(self) -> Any:
        return self.model(self.packed, use_cache=False).logits

    def prepacked(self) -> Any:
        return self.packed_model(self.packed, use_cache=False).logits

    def engine(self) -> Any:
        logits = self.runner.forward([Chunk(i, draft, len(draft)) for i, draft in enumerate(self.drafts)])
        for i in range(len(self.drafts)):
            self.runner.truncate(i, CONTEXT)
        return logits

    def padded(self) -> Any:
        logits = self.model(self.rows, attention_mask=self.mask, past_key_values=self.cache).logits
        self.cache.crop(-self.widest)
        return logits

    def check(self) -> float:
        """Returns the largest difference of the engine's logits from the padded way's."""
        found, expected = self.engine(), self.padded()
        rows = torch.cat([row[: len(draft)] for row, draft in zip(expected, self.drafts, strict=True)])
        return float((found - rows).abs().max())


def make_tokens(rng: random.Random, num_tokens: int, vocab_size: int) -> list[int]:
    return [rng.randrange(vocab_size) for _ in range(num_tokens)]


@torch.inference_mode()
def measure(case: Case, device: str, dtype: str) -> dict[str, Any]:
    ways = Ways(case, device, dtype)
    difference = ways.check()
    calls = {name: partial(timed, getattr(ways, name), device, case.num_calls) for name in WAYS}
    times = benchmark.in_turns(calls, case.repetitions)
    medians = {f"{name}_s": statistics.median(seconds) for name, seconds in times.items()}
    ratios = {
        f"{name}_ratio": benchmark.median_ratio(times[name], times["plain"])
        for name in ("prepacked", "engine", "padded")
    }
    ratios["paging_ratio"] = benchmark.median_ratio(times["engine"], times["prepacked"])
    num_tokens = ways.packed.shape[1]
    return asdict(case) | {"num_tokens": num_tokens, "difference": difference} | medians | ratios


def show(result: dict[str, Any]) -> None:
    wanted = f"at most {result['wanted']:.2f}" if result["wanted"] else "-"
    times = " ".join(f"{result[f'{way}_s'] * 1e3:>10.2f}" for way in WAYS)
    print(
        f"{result['shape']:>6} {result['num_sessions']:>8} {result['num_tokens']:>6} {times}"
        f" {result['paging_ratio']:>16.3f} {wanted:>13} {result['engine_ratio']:>12.3f} {result['padded_ratio']:>12.3f}"
    )


def main() -> int:
    parser = benchmark.parser("engine", __doc__, "fewer layers, sessions and repetitions")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--threads", type=int, default=1, help="torch threads; a node has one (default 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(" shape sessions tokens" + "".join(f"{way:>11}" for way in WAYS), end=" ms ")
    print("engine/prepacked        wanted engine/plain padded/plain")
    results = []
    for case in QUICK if options.quick else CASES:
        results.append(measure(case, options.device, options.dtype))
        show(results[-1])
    setting = {"context": CONTEXT, "threads": options.threads, "device": options.device}
    benchmark.report(options, setting | {"cases": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
