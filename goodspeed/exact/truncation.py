"""Top-k and top-p truncation of rows of logits on any device: `masked` hides the tokens that `Kept` would not list.

On an asynchronous device the number of retained tokens is not known without waiting for the device, so whole rows are
masked there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from goodspeed.exact.kept import Truncation


def masked(logits: Tensor, samplings: Sequence[Truncation], rows: Sequence[int]) -> Tensor:
    """Returns logits [batch, vocab] with dropped tokens of `rows` set to -inf. Only rows without top-k sort fully."""
    vocab = logits.shape[-1]
    top_k = [i for i in rows if 0 < samplings[i].top_k < vocab]
    top_p = [i for i in rows if not 0 < samplings[i].top_k < vocab]
    for group in (top_k, top_p):
        if group:
            logits = _masked(logits, [samplings[i] for i in group], group)
    return logits


def _masked(logits: Tensor, samplings: Sequence[Truncation], rows: list[int]) -> Tensor:
    def tensor(values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype).to(logits.device, non_blocking=True)

    vocab = logits.shape[-1]
    counts = [min(sampling.top_k or vocab, vocab) for sampling in samplings]
    index = tensor(rows, torch.int64)
    last = tensor(counts, torch.int64).unsqueeze(-1) - 1  # [rows, 1]
    top_p = tensor([sampling.top_p for sampling in samplings], torch.float64).unsqueeze(-1)
    chosen = logits[index]  # [rows, vocab]
    ordered = chosen.topk(max(counts)).values  # [rows, most], descending
    beyond = torch.arange(ordered.shape[-1], device=logits.device) > last
    mass = ordered.masked_fill(beyond, -torch.inf).softmax(-1).cumsum(-1, dtype=torch.float64)
    reached = (mass < top_p).sum(-1, keepdim=True)
    least = ordered.gather(-1, torch.where(top_p < 1, torch.minimum(reached, last), last))  # [rows, 1]
    return logits.index_copy(0, index, chosen.masked_fill(chosen < least, -torch.inf))
