"""Acceptance by depth: of the tokens of a draft whose predecessors were all accepted, how many are accepted.

An ordinary draft model knows the tokens before each place, one that drafts in parallel (PARD) does not.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from goodspeed.exact import sampling
from training import parallel, tokenizer
from training.parallel import Masks

DEPTH = 8


@torch.inference_mode()
def probabilities(model: LlamaForCausalLM, prompt: list[int], written: list[int], temperature: float) -> Tensor:
    """Of drafts that begin at each place of a written text [starts, DEPTH, vocab]; no draft passes the text's end."""
    ids, starts = torch.tensor([prompt + written]), torch.arange(len(written) - DEPTH + 1)
    base = len(prompt) - 1 + starts  # positions after which a draft begins
    depths = torch.arange(DEPTH)
    if hasattr(model.config, "pard_token"):
        after, depth = base.repeat_interleave(DEPTH - 1), depths[1:].repeat(len(starts))
        predicted = parallel.predicted(model, ids, Masks(after, depth))[0]
        behind = predicted[ids.shape[1] :].view(len(starts), DEPTH - 1, -1)
        logits = torch.cat([predicted[base, None], behind], dim=1)
    else:
        logits = model(input_ids=ids, use_cache=False).logits[0][base[:, None] + depths]
    logits = logits[..., : tokenizer.VOCAB_SIZE]
    if not temperature:
        return functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    return (logits / temperature).softmax(-1)


def reached(
    model: LlamaForCausalLM, prompt: list[int], written: list[int], temperature: float, seed: int, draws: Tensor
) -> Tensor:
    """Of the drafts that begin at each place, how many have at least 0, 1, ... DEPTH accepted tokens [DEPTH + 1].

    By the match rule. draws [written]: the target's token of every position of the text.
    """
    if len(written) < DEPTH:
        return torch.zeros(DEPTH + 1, dtype=torch.int64)
    probs = probabilities(model, prompt, written, temperature)
    places = torch.arange(len(probs))[:, None] + torch.arange(DEPTH)  # [starts, DEPTH], of the text
    flat = places.flatten()
    tokens = sampling.sample(probs.flatten(0, 1), torch.full_like(flat, seed), len(prompt) + flat).view_as(places)
    accepted = (tokens == draws[places]).long().cumprod(-1).sum(0)
    return torch.cat([torch.tensor([len(probs)]), accepted])


class Rates(NamedTuple):
    by_depth: list[float]  # of depths 1 to DEPTH: share accepted where all before were
    mean: float  # accepted tokens of a draft


def rates(numbers: list[int]) -> Rates:
    """numbers: as from `reached`, summed over texts."""
    return Rates([after / max(before, 1) for before, after in pairwise(numbers)], sum(numbers[1:]) / max(numbers[0], 1))
