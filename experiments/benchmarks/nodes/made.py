"""Checkpoints of made models, with random weights and no tokenizer, and the time that calls of a model take."""

import time
from collections.abc import Callable
from typing import Any

import torch

from goodspeed.engine.engine import Checkpoint


def made_checkpoint(model: Any, context_len: int = 2048, name: str = "made") -> Checkpoint:
    """A checkpoint of this model, on its device and in its dtype; every id of its vocabulary is a token."""
    return Checkpoint(
        name=name,
        model=model,
        tokenizer=None,
        tokenizer_fingerprint="",
        eos_ids=(),
        vocab_size=model.config.vocab_size,
        num_tokens=model.config.vocab_size,
        context_len=context_len,
        device=model.device,
        dtype=model.dtype,
    )


def timed(call: Callable[[], Any], device: str, num_calls: int = 1) -> float:
    """Returns the seconds of a call; with one thread on a CPU the process's own, without waiting for a core."""
    clock = time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    before = clock()
    for _ in range(num_calls):
        call()
    if device != "cpu":
        torch.cuda.synchronize()
    return (clock() - before) / num_calls
