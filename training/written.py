"""Texts that the target writes on from beginnings of training documents, as streams of token ids for `parallel.py`."""

import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from training import corpus, domains, tokenizer

TEMPERATURES = (0.0, 1.0)
TOGETHER = 96  # texts of one call of `generate`
WRITTEN = 160  # tokens that the target writes on from each beginning
BEGINNINGS = (16, 96)  # fewest and most tokens of a beginning


def beginnings(tok: Tokenizer, rng: Random) -> Iterator[list[list[int]]]:
    """Yields batches [TOGETHER, length] of document beginnings, all domains alike; endless."""
    documents = [corpus.training_documents(domain, corpus.NUM_TOKENS // 8) for domain in domains.NAMES]
    while True:
        length = rng.randint(*BEGINNINGS)
        batch: list[list[int]] = []
        while len(batch) < TOGETHER:
            text = rng.choice(documents[len(batch) % len(documents)]).text
            start = text.find("\n", rng.randrange(len(text))) + 1  # a line's beginning, or the document's
            ids = tok.encode(text[start : start + 8 * length]).ids
            if len(ids) >= length:
                batch.append(ids[:length])
        yield batch


@torch.inference_mode()
def continued(target: LlamaForCausalLM, batch: list[list[int]], temperature: float) -> list[int]:
    """The texts of a batch one after the other, each ended by END where the target ended it."""
    how: dict[str, Any] = {"do_sample": False}
    if temperature:
        how = {"do_sample": True, "temperature": temperature, "top_k": 0}
    ids = torch.tensor(batch, device=target.device)
    rows = target.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=WRITTEN, **how).tolist()
    ends = [row.index(tokenizer.END_ID) + 1 if tokenizer.END_ID in row else len(row) for row in rows]
    return [token for row, end in zip(rows, ends, strict=True) for token in row[:end]]


def write(target: LlamaForCausalLM, tok: Tokenizer, seconds: float, seed: int = 0) -> dict[str, corpus.Tokens]:
    """Writes for so long, at each temperature in turn: {"temperature": stream of token ids}."""
    torch.manual_seed(seed)
    streams: dict[str, list[int]] = {f"{temperature:g}": [] for temperature in TEMPERATURES}
    begin = time.monotonic()
    for step, batch in enumerate(beginnings(tok, Random(seed))):
        temperature = TEMPERATURES[step % len(TEMPERATURES)]
        streams[f"{temperature:g}"] += continued(target, batch, temperature)
        spent = time.monotonic() - begin
        print(f"texts: {sum(map(len, streams.values()))} tokens {spent:.0f} s", file=sys.stderr, flush=True)
        if spent >= seconds and step >= len(TEMPERATURES) - 1:
            break
    return {name: np.asarray(stream, dtype=np.uint16) for name, stream in streams.items()}
