"""Texts that the target writes on from places of the training stream, as streams of token ids.

The draft models learn on these: what they are asked to foresee is the target's own text.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from training import tokenizer
from training.corpus import Tokens

TEMPERATURES = (0.0, 1.0)
TOGETHER = 96  # texts of one call of `generate`, in steps of `corpus.BLOCK` tokens
WRITTEN = 160  # tokens that the target writes on from each beginning
BEGINNINGS = (16, 96)  # fewest and most tokens of a beginning
ROW = 192  # tokens in a row of training text


def beginnings(tokens: Tokens, rng: Random, together: int) -> Iterator[list[list[int]]]:
    """Yields batches [together, length]: every second one begins a document, the others lie anywhere; endless."""
    starts = np.flatnonzero(np.asarray(tokens[: -BEGINNINGS[1]]) == tokenizer.END_ID) + 1
    while True:
        length = rng.randint(*BEGINNINGS)
        first = rng.choices(starts.tolist(), k=together // 2) if len(starts) else []
        first += [rng.randrange(len(tokens) - length) for _ in range(together - len(first))]
        yield [tokens[start : start + length].tolist() for start in first]


@torch.inference_mode()
def continued(target: LlamaForCausalLM, batch: list[list[int]], temperature: float) -> list[int]:
    """The texts of a batch one after the other, each ended by END where the target ended it."""
    how: dict[str, Any] = {"do_sample": False}
    if temperature:
        how = {"do_sample": True, "temperature": temperature, "top_k": 0}
    ids = torch.tensor(batch, device=target.device)
    rows = target.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=WRITTEN, **how)
    return [token for row in rows.tolist() for token in ended(row, len(batch[0]))]


def ended(row: list[int], length: int) -> list[int]:
    """A beginning of so many tokens with what was written, up to END."""
    return row[: row.index(tokenizer.END_ID, length) + 1] if tokenizer.END_ID in row[length:] else row


def write(
    target: LlamaForCausalLM, tokens: Tokens, seconds: float, together: int = TOGETHER, seed: int = 0
) -> dict[str, Tokens]:
    """Writes for so long, at each temperature in turn: {"temperature": stream of token ids}."""
    torch.manual_seed(seed)
    streams: dict[str, list[int]] = {f"{temperature:g}": [] for temperature in TEMPERATURES}
    begin = time.monotonic()
    for step, batch in enumerate(beginnings(tokens, Random(seed), together)):
        temperature = TEMPERATURES[step % len(TEMPERATURES)]
        streams[f"{temperature:g}"] += continued(target, batch, temperature)
        spent = time.monotonic() - begin
        print(f"texts: {sum(map(len, streams.values()))} tokens {spent:.0f} s", file=sys.stderr, flush=True)
        if spent >= seconds and step >= len(TEMPERATURES) - 1:
            break
    return {name: np.asarray(stream, dtype=np.uint16) for name, stream in streams.items()}


def path(state: Path, name: str) -> Path:
    """The file of the texts that were written at a temperature."""
    return state / f"written-{name}.npy"


class Rows:
    """The texts in rows of a step, of each temperature in turn."""

    def __init__(self, state: Path, block: int) -> None:
        """block: tokens of a step. Exits if no texts were written, or too few."""
        self.num_rows = block // 256
        names = [f"{temperature:g}" for temperature in TEMPERATURES]
        if missing := [str(path(state, name)) for name in names if not path(state, name).exists()]:
            sys.exit(f"there is no {missing[0]}; run the stage texts first")
        self.streams = {name: np.load(path(state, name), mmap_mode="r", allow_pickle=False) for name in names}
        if min(map(len, self.streams.values())) <= ROW * self.num_rows:
            sys.exit(f"the texts in {state} are shorter than a step; run the stage texts for longer")

    def of(self, step: int) -> tuple[Tensor, float]:
        """(text [rows, ROW], temperature it was written at) of a step; each time through a stream begins elsewhere."""
        name = list(self.streams)[step % len(self.streams)]
        stream, step = self.streams[name], step // len(self.streams)
        size = ROW * self.num_rows
        start = (step * size + step * size // len(stream) * 97) % (len(stream) - size)
        rows = torch.from_numpy(stream[start : start + size].astype(np.int64)).view(self.num_rows, ROW)
        return rows, float(name)
