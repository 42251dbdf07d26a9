"""The two verification rules as pure tensor functions, and what Eq. (3) observes under each.

Knows nothing about where probabilities, tokens or noise came from. A batch is ragged: row i verifies `num_drafted[i]`
of `max_len` columns; what stands in the columns beyond is never looked at. Nothing here waits for the device.

Both rules give (num_accepted [batch], next_token [batch]): the accepted prefix of the draft, and the recovered token
after a rejection or the bonus token after a full acceptance.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from goodspeed.exact.sampling import draw


def verify_match(target_tokens: Tensor, draft_tokens: Tensor, num_drafted: Tensor) -> tuple[Tensor, Tensor]:
    """Accept while the draft equals the target's own draw; the next token is the target's draw there.

    target_tokens [batch, max_len + 1]: the target's draws after 0, 1, ... drafted tokens. draft_tokens
    [batch, max_len], num_drafted [batch].
    """
    num_accepted = _prefix(_equal(target_tokens, draft_tokens, num_drafted))
    return num_accepted, target_tokens.gather(1, num_accepted.unsqueeze(1)).squeeze(1)


def agreement_match(target_tokens: Tensor, draft_tokens: Tensor, num_drafted: Tensor) -> Tensor:
    """Sum over the drafted positions of 1 where draft and target drew the same token [batch], fp64; see Eq. (3)."""
    return _equal(target_tokens, draft_tokens, num_drafted).double().sum(1)


def match(target_tokens: Sequence[int], draft_tokens: Sequence[int]) -> tuple[int, int]:
    """`verify_match` and `agreement_match` of one row, on the host: (num_accepted, agreement).

    target_tokens [num_drafted + 1], draft_tokens [num_drafted]; the next token is target_tokens[num_accepted].
    """
    agrees = [target == draft for target, draft in zip(target_tokens, draft_tokens, strict=False)]
    return agrees.index(False) if False in agrees else len(agrees), sum(agrees)


def verify_ratio(
    target_probs: Tensor,
    draft_tokens: Tensor,
    draft_probs: Tensor,
    num_drafted: Tensor,
    accept_noise: Tensor,
    final_noise: Tensor,
) -> tuple[Tensor, Tensor]:
    """Rejection sampling with min(1, p/q) (Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2).

    target_probs p [batch, max_len + 1, vocab], draft_tokens [batch, max_len], draft_probs q [batch, max_len, vocab]
    (what the tokens were really sampled from), num_drafted [batch], noise uniform in [0, 1): accept_noise
    [batch, max_len], final_noise [batch]. The two vocabularies may differ in padding: what one lacks has probability
    zero there. After a rejection the next token is drawn from max(p - q, 0), else from p.
    """
    num_accepted = _prefix(decide_ratio(target_probs, draft_tokens, draft_probs, num_drafted, accept_noise))
    weights = _residual(target_probs, draft_probs, num_accepted, num_accepted < num_drafted)
    return num_accepted, draw(weights, final_noise)


def decide_ratio(
    target_probs: Tensor, draft_tokens: Tensor, draft_probs: Tensor, num_drafted: Tensor, accept_noise: Tensor
) -> Tensor:
    """Which drafted tokens pass by themselves, also after a rejection [batch, max_len]; see `verify_ratio`."""
    p, q = _probs_of_drafted(target_probs, draft_tokens, draft_probs)  # [batch, max_len]
    # Strict: with <= a token of probability zero would be accepted at noise 0.
    return (accept_noise.double() * q < p) & (q > 0) & _drafted(draft_tokens, num_drafted)


def ratios(target_probs: Tensor, draft_tokens: Tensor, draft_probs: Tensor, num_drafted: Tensor) -> Tensor:
    """min(1, p/q) of the drafted tokens, also those after a rejection; zero in padding [batch, max_len], fp64."""
    p, q = _probs_of_drafted(target_probs, draft_tokens, draft_probs)
    ratio = torch.where(q > 0, p / q.clamp(min=torch.finfo(q.dtype).tiny), 0.0).clamp(max=1.0)
    return torch.where(_drafted(draft_tokens, num_drafted), ratio, 0.0)


def overlaps(target_probs: Tensor, draft_probs: Tensor, num_drafted: Tensor) -> Tensor:
    """Sum over the vocabulary of min(p, q) at each drafted position; zero in padding [batch, max_len], fp64.

    The mean of min(1, p/q) over tokens that are drawn from q: what Eq. (3) observes, without the chance of the one
    token that was drawn, and without anything that the choice of a token could change at its own position.
    """
    vocab = min(target_probs.shape[-1], draft_probs.shape[-1])
    columns = [  # one at a time: no third copy of everything
        torch.minimum(target_probs[:, column, :vocab], draft_probs[:, column, :vocab]).sum(-1).double()
        for column in range(draft_probs.shape[1])
    ]
    found = torch.stack(columns, 1) if columns else draft_probs.new_zeros(draft_probs.shape[:2]).double()
    return torch.where(_drafted(draft_probs, num_drafted), found, 0.0)


def agreement_ratio(target_probs: Tensor, draft_probs: Tensor, num_drafted: Tensor) -> Tensor:
    """Sum over the drafted positions of the mean of min(1, p/q) under q [batch], fp64; see Eq. (3) and `overlaps`."""
    return overlaps(target_probs, draft_probs, num_drafted).sum(1)


def _drafted(columns: Tensor, num_drafted: Tensor) -> Tensor:
    """True where columns [batch, max_len, ...] hold something drafted, False in padding [batch, max_len]."""
    return torch.arange(columns.shape[1], device=columns.device) < num_drafted.unsqueeze(1)


def _equal(target_tokens: Tensor, draft_tokens: Tensor, num_drafted: Tensor) -> Tensor:
    return (target_tokens[:, : draft_tokens.shape[1]] == draft_tokens) & _drafted(draft_tokens, num_drafted)


def _prefix(accepted: Tensor) -> Tensor:
    """Length [batch] of the run of True at the start of each row."""
    return accepted.long().cumprod(1).sum(1)


def _probs_of_drafted(target_probs: Tensor, draft_tokens: Tensor, draft_probs: Tensor) -> tuple[Tensor, Tensor]:
    """p and q of the drafted tokens themselves, both [batch, max_len] fp64."""
    return _at(target_probs[:, : draft_tokens.shape[1]], draft_tokens), _at(draft_probs, draft_tokens)


def _at(probs: Tensor, tokens: Tensor) -> Tensor:
    """probs [batch, max_len, vocab] at tokens [batch, max_len]; zero for an id outside the vocabulary."""
    vocab = probs.shape[-1]
    found = probs.gather(-1, tokens.clamp(0, vocab - 1).unsqueeze(-1)).squeeze(-1).double()
    return torch.where((tokens >= 0) & (tokens < vocab), found, 0.0)


def _residual(target_probs: Tensor, draft_probs: Tensor, column: Tensor, rejected: Tensor) -> Tensor:
    """Weights [batch, vocab] of the next token at `column` [batch]: p, less q where a token was rejected."""
    batch = torch.arange(len(column), device=column.device)
    p = target_probs[batch, column]  # [batch, vocab]
    if draft_probs.shape[1] == 0:
        return p
    q = draft_probs[batch, column.clamp(max=draft_probs.shape[1] - 1)][:, : p.shape[1]]
    residual = p.clone()
    residual[:, : q.shape[1]].sub_(q).clamp_(min=0)
    # p below q everywhere is rounding: the two are equal, and so is drawing from p.
    use = rejected & (residual.sum(1) > 0)
    return torch.where(use.unsqueeze(1), residual, p)
