"""The rounds that `gpu.py` times: sessions with full contexts, on random weights of a real model's shape.

Like `gpu.py` it needs torch, transformers and numpy only.
"""

import time
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3Config

from goodspeed.engine.engine import Checkpoint, mark
from goodspeed.engine.runner import Chunk, Runner
from verify_node.model.match_sampling import MatchDecision, Verified, decide_match

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-14b": {
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
        "max_position_embeddings": 40_960,
    },
    "micro": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 10,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 512,
        "max_position_embeddings": 8192,
    },
}
PAGE_SIZE = 16
PREFILL = 2048  # tokens of one prefill pass


@dataclass(frozen=True)
class Case:
    num_sessions: int
    budget: int  # drafted tokens of a round, spread evenly
    context: int

    @property
    def drafts(self) -> list[int]:
        """Draft length of each session."""
        return [self.budget * (i + 1) // self.num_sessions - self.budget * i // self.num_sessions for i in self.ids]

    @property
    def ids(self) -> range:
        return range(self.num_sessions)

    @property
    def num_pages(self) -> int:
        return self.num_sessions * -(-(self.context + max(self.drafts) + 1) // PAGE_SIZE)


class Sampling(NamedTuple):
    """Every session's sampling; see `goodspeed.exact.sampling.Sampling`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class Times(NamedTuple):
    """Seconds of one round's parts."""

    dispatch: float
    forward: float
    rest: float


class Rounds:
    """The sessions of one case, with cached contexts; every round restores them."""

    def __init__(self, runner: Runner, case: Case, sampling: Sampling) -> None:
        self.runner, self.case = runner, case
        self.device, self.vocab = runner.checkpoint.device, runner.checkpoint.num_tokens
        self.chunks = [
            Chunk(i, self._tokens(i, num + 1), num + 1) for i, num in zip(case.ids, case.drafts, strict=True)
        ]
        ends = [sum(chunk.num_logits for chunk in self.chunks[: i + 1]) for i in case.ids]
        self.entries = [
            Verified(
                first_row=end - chunk.num_logits,
                base_len=case.context + 1,
                drafted=list(chunk.tokens[1:]),
                sampling=sampling._replace(seed=i),
            )
            for i, (end, chunk) in enumerate(zip(ends, self.chunks, strict=True))
        ]

    def fill(self) -> float:
        """Prefills all contexts; returns the seconds it took."""
        started = self._now()
        piece = min(PREFILL, self.case.context)
        together = max(1, PREFILL // piece)
        for first in range(0, self.case.num_sessions, together):
            keys = self.case.ids[first : first + together]
            for start in range(0, self.case.context, piece):
                num = min(piece, self.case.context - start)
                self.runner.forward([Chunk(key, self._tokens(key + start, num), 0) for key in keys])
        return self._now() - started

    @torch.inference_mode()
    def run(self) -> Times:
        """One round, timed as `Target.run` times it: nothing waits for the device between the pass and the results."""
        started, begin = self._now(), mark(self.device)
        logits = self.runner.forward(self.chunks)
        dispatched, end = time.perf_counter(), mark(self.device)
        self.decide(logits)
        finished = self._now()
        forward_s = dispatched - started if begin is None or end is None else begin.elapsed_time(end) / 1e3
        for key in self.case.ids:
            self.runner.truncate(key, self.case.context)
        return Times(dispatched - started, forward_s, finished - started - forward_s)

    def free(self) -> None:
        for key in self.case.ids:
            self.runner.free(key)

    def decide(self, logits: Tensor) -> list[MatchDecision]:
        return decide_match(self.entries, logits, self.runner.checkpoint.num_tokens)

    def _tokens(self, start: int, num: int) -> list[int]:
        return [(start + i) * 7919 % self.vocab for i in range(num)]

    def _now(self) -> float:
        """Returns the time once the device is idle."""
        wait(self.device)
        return time.perf_counter()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def build(shape: str, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    """Makes random weights on the device itself in their own dtype: the host never holds them."""
    config = Qwen3Config(**SHAPES[shape], tie_word_embeddings=False)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
    tensors = chain(model.named_parameters(), model.named_buffers())
    elsewhere = [name for name, tensor in tensors if tensor.device.type != device.type]
    if elsewhere:
        raise RuntimeError(f"weights were not built on {device}: {', '.join(elsewhere[:3])}")
    return Checkpoint(
        name=shape,
        model=model,
        tokenizer=None,
        tokenizer_fingerprint="",
        eos_ids=(),
        vocab_size=model.config.vocab_size,
        num_tokens=model.config.vocab_size,  # every id is a token
        context_len=config.max_position_embeddings,
        device=model.device,
        dtype=model.dtype,
    )


def weight_bytes(model: Any) -> int:
    """Returns the bytes of weights that every round reads: all but the embedding table (a few rows)."""
    table = model.get_input_embeddings().weight
    return sum(weight.nbytes for weight in model.parameters() if weight is not table)


def copy_bandwidth(device: torch.device, num_bytes: int) -> float:
    """Returns the bytes per second, read and written, of a large copy; the best of a few."""
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    target, times = torch.empty_like(source), []
    for _ in range(8):
        wait(device)
        started = time.perf_counter()
        target.copy_(source)
        wait(device)
        times.append(time.perf_counter() - started)
    return 2 * num_bytes / min(times)
