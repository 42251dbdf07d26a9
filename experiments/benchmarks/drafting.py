"""Cost of a drafted token: the draft node's proposals beside bare forward passes of its model.

1, 4, 8 and 16 sessions with contexts of 128 to 256 tokens propose `LENGTH` tokens each, verdict after verdict.
*drafter* is all that `goodspeed.drafting.drafter` does for these proposals: it forgets what the target rejected, feeds
what it decided, draws. A proposal of S tokens takes S forward passes; the one or two tokens of the verdict are in the
first of them, and what they cost counts as drafting. *bare* is the unmodified model decoding one token for each session
in one pass over its own DynamicCache at the mean context, nothing drawn; *plain* the same tokens as one sequence
without any cache, which attends to next to nothing: it remembers nothing, so no decoding can be faster by much.
*openvino* is the same drafter on the OpenVINO engine, from a GGUF file in float32 (embedded models only; 0: it is not
installed). All are seconds per drafted token of one session. They take turns in every repetition; times are the
process's own, on one thread, and ratios medians of the ratios within a repetition.

It takes about 5 minutes on two cores; about 20 s with --quick.
"""

import atexit
import copy
import importlib.util
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

from draft_node.core.generation import Generation
from experiments.benchmarks.nodes.made import made_checkpoint
from experiments.harness import benchmark
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.model import DraftModel
from goodspeed.drafting.proposing import Propose
from goodspeed.embedded.models import NAMES
from goodspeed.engine import checkpoints, engines
from goodspeed.engine.engine import Checkpoint
from goodspeed.engine.exporting.checkpoint import export
from goodspeed.engine.runner import Runner
from goodspeed.wire.messages import Sampling

LENGTH = 5
FIRST, LAST = 128, 256  # contexts grow from the first to the last, then begin again
MIDDLE = (FIRST + LAST) // 2
SAMPLINGS = {
    "T=1": Sampling(temperature=1.0),
    "T=0": Sampling(temperature=0.0),
    "T=1 top-k 50 top-p 0.9": Sampling(temperature=1.0, top_k=50, top_p=0.9),
}
SHAPES = {"hidden 512, 8 layers": {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8}}


WANTED_OPENVINO = 0.35
"""Of torch's time for a drafted token, with 1 and 8 sessions."""


@dataclass(frozen=True)
class Case:
    model: str
    num_sessions: int
    sampling: str
    wanted: float | None  # largest ratio to bare that we want to see
    wanted_openvino: float | None  # largest ratio of openvino to drafter
    repetitions: int


def cases(quick: bool) -> list[Case]:
    models = (("tiny-draft-s", 1.5, 40, (1, 4, 8, 16)), ("hidden 512, 8 layers", 1.2, 12, (1, 4, 16)))
    small = (("tiny-draft-s", 1.5, 2, (4,)), ("hidden 512, 8 layers", 1.2, 1, (1,)))
    return [
        Case(
            model,
            num_sessions,
            sampling,
            wanted if sampling == "T=1" else None,
            WANTED_OPENVINO if model in NAMES and num_sessions in (1, 8) else None,
            repetitions,
        )
        for model, wanted, repetitions, counts in (small if quick else models)
        for sampling in SAMPLINGS
        for num_sessions in counts
        if sampling == "T=1" or model in NAMES
    ]


@cache
def load(name: str) -> Checkpoint:
    if name not in SHAPES:
        return checkpoints.load(name)
    config = LlamaConfig(**SHAPES[name], intermediate_size=1408, vocab_size=4096, max_position_embeddings=2048)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    return made_checkpoint(model)


@cache
def on_openvino(name: str) -> Checkpoint | None:
    """Returns an embedded model on the other engine; None for others, and where it is missing."""
    if name not in NAMES or importlib.util.find_spec("openvino") is None:
        return None
    file = Path(tempfile.mkdtemp(prefix="drafting-"), f"{name}.gguf")
    atexit.register(shutil.rmtree, file.parent)
    export(name, file, "f32")
    return engines.load(str(file))


class Ways:
    """One model, and ways to take `LENGTH` tokens of every session through it."""

    def __init__(self, case: Case) -> None:
        checkpoint = load(case.model)
        self.rng = random.Random(0)
        self.num_tokens = checkpoint.num_tokens
        self.model: Any = copy.deepcopy(checkpoint.model)
        checkpoint = replace(checkpoint, model=copy.deepcopy(checkpoint.model))  # a runner makes it its own
        self.model.set_attn_implementation("sdpa")
        self.row = torch.tensor([self.make_tokens(case.num_sessions)])  # [1, num_sessions]
        self.cache = DynamicCache(config=self.model.config)
        contexts = torch.tensor([self.make_tokens(MIDDLE) for _ in range(case.num_sessions)])
        self.model(contexts, past_key_values=self.cache, logits_to_keep=1)
        num_pages = case.num_sessions * (LAST // 16 + 2)
        runner = Runner(checkpoint, num_pages=num_pages, page_size=16)
        sampling = SAMPLINGS[case.sampling]
        requests = [
            Generation(
                bytes([number]) * 16, (), Sampling(sampling.temperature, sampling.top_k, sampling.top_p, number), 99
            )
            for number in range(case.num_sessions)
        ]
        self.ours = Proposing(Drafter(checkpoint, runner), requests, self.make_tokens)
        self.openvino: Proposing | None = None
        if (other := on_openvino(case.model)) is not None:
            drafter = Drafter(other, engines.start(other, num_pages=num_pages))
            self.openvino = Proposing(drafter, requests, self.make_tokens)

    def make_tokens(self, num_tokens: int) -> list[int]:
        return [self.rng.randrange(self.num_tokens) for _ in range(num_tokens)]

    def bare(self) -> None:
        for _ in range(LENGTH):
            self.model(self.row.T, past_key_values=self.cache)

    def plain(self) -> None:
        for _ in range(LENGTH):
            self.model(self.row, use_cache=False)

    def crop(self) -> None:
        """Crops the cache to the mean context; the untimed part of a bare turn."""
        self.cache.crop(MIDDLE - self.cache.get_seq_length())


class Proposing:
    """A drafter whose sessions propose `LENGTH` tokens, verdict after verdict."""

    def __init__(
        self, drafter: DraftModel, requests: Sequence[Generation], make_tokens: Callable[[int], list[int]]
    ) -> None:
        self.drafter, self.requests, self.make_tokens = drafter, requests, make_tokens
        self.rng = random.Random(1)
        self.drafted: dict[bytes, tuple[int, ...]] = {}
        self.restart()

    def restart(self) -> None:
        for request in self.requests:
            self.drafter.forget(request.session_id)
        self.bases = [self.make_tokens(FIRST) for _ in self.requests]
        self.drafts()  # feeds them

    def drafts(self) -> None:
        """Makes one proposal for every session, after the verdicts on the last ones."""
        for request, base in zip(self.requests, self.bases, strict=True):
            self.drafter.add(Propose(request, 1, 1, tuple(base), LENGTH))
        while self.drafter.busy:
            for proposed in self.drafter.step():
                self.drafted[proposed.session_id] = proposed.tokens

    def judge(self) -> None:
        """Makes verdicts, and new sessions for long ones; the untimed part of a drafter's turn."""
        for request, base in zip(self.requests, self.bases, strict=True):
            accepted = self.drafted[request.session_id][: self.rng.randint(0, LENGTH)]
            base += [*accepted, *self.make_tokens(1)]
        if max(map(len, self.bases)) > LAST - LENGTH:
            self.restart()
            self.judge()


@torch.inference_mode()
def measure(case: Case) -> dict[str, Any]:
    ways = Ways(case)
    turns = {
        "bare": (ways.crop, ways.bare),
        "plain": (ways.crop, ways.plain),
        "drafts": (ways.ours.judge, ways.ours.drafts),
    }
    if ways.openvino:
        turns["openvino"] = ways.openvino.judge, ways.openvino.drafts
    num_tokens = 4 * LENGTH * case.num_sessions

    def four(before: Callable[[], None], turn: Callable[[], None]) -> float:
        return sum(timed(before, turn) for _ in range(4)) / num_tokens

    times = benchmark.in_turns({name: partial(four, *turn) for name, turn in turns.items()}, case.repetitions)
    bare, plain, drafts, *others = times.values()
    return asdict(case) | {
        "bare_s": statistics.median(bare),
        "plain_s": statistics.median(plain),
        "drafter_s": statistics.median(drafts),
        "ratio": benchmark.median_ratio(drafts, bare),
        "plain_ratio": benchmark.median_ratio(drafts, plain),
        "openvino_s": statistics.median(others[0]) if others else 0.0,
        "openvino_ratio": benchmark.median_ratio(others[0], drafts) if others else 0.0,
    }


def timed(before: Callable[[], None], call: Callable[[], None]) -> float:
    before()
    start = time.process_time()
    call()
    return time.process_time() - start


def show(row: dict[str, Any]) -> None:
    wanted = f"at most {row['wanted']:.1f}" if row["wanted"] else "-"
    of_openvino = f"at most {row['wanted_openvino']:.2f}" if row["wanted_openvino"] else "-"
    print(
        f"{row['model']:>20} {row['num_sessions']:>8} {row['sampling']:>22} {row['bare_s'] * 1e6:>8.0f}"
        f" {row['plain_s'] * 1e6:>8.0f} {row['drafter_s'] * 1e6:>10.0f} {row['ratio']:>12.3f} {wanted:>11}"
        f" {row['plain_ratio']:>13.3f} {row['openvino_s'] * 1e6:>11.0f} {row['openvino_ratio']:>16.3f}"
        f" {of_openvino:>12}",
        flush=True,
    )


def main() -> int:
    options = benchmark.parser("drafting", __doc__, "fewer sessions and repetitions").parse_args()
    torch.set_num_threads(1)
    print(
        f"{'model':>20} sessions {'sampling':>22}  bare us plain us drafter us drafter/bare      wanted drafter/plain"
        " openvino us openvino/drafter       wanted"
    )
    rows = []
    for case in cases(options.quick):
        rows.append(measure(case))
        show(rows[-1])
    benchmark.report(options, {"length": LENGTH, "contexts": [FIRST, LAST], "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
