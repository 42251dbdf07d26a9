"""The two verification rules as pure functions, and what Eq. (3) observes under each.

A verify node runs `match` for each session under the match rule, on the host; and `verify_ratio`, `ratios` and
`overlaps`, with `decide_ratio` inside, for a batch under the ratio rule. `verify_match` is `match` over a batch.

A batch is ragged: row i verifies `num_drafted[i]` of `max_len` columns; the columns beyond are padding and are never
read. Both rules over batches return (num_accepted [batch], next_token [batch]): the accepted prefix of the draft, and
the recovered token after a rejection or the bonus token after a full acceptance. No function on tensors waits for the
device.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from goodspeed.exact import trees
from goodspeed.exact.sampling import draw


def verify_match(target_tokens: Tensor, draft_tokens: Tensor, num_drafted: Tensor) -> tuple[Tensor, Tensor]:
    """Accepts while the draft equals the target's own draw; the next token is the target's draw there.

    For other programs: the nodes run `match`, the same rule for one session at a time.

    target_tokens [batch, max_len + 1]: the target's draws after 0, 1, ... drafted tokens. draft_tokens
    [batch, max_len], num_drafted [batch].
    """
    drafted = _drafted(draft_tokens, num_drafted)
    num_accepted = _prefix((target_tokens[:, : draft_tokens.shape[1]] == draft_tokens) & drafted)
    return num_accepted, target_tokens.gather(1, num_accepted.unsqueeze(1)).squeeze(1)


def match(target_tokens: Sequence[int], draft_tokens: Sequence[int]) -> tuple[int, int]:
    """The match rule for one session, on the host: returns (num_accepted, agreement).

    target_tokens [num_drafted + 1], draft_tokens [num_drafted]; the next token is target_tokens[num_accepted].
    agreement counts all drafted tokens that the target drew too, also after a rejection; see Eq. (3).
    """
    agrees = [target == draft for target, draft in zip(target_tokens, draft_tokens, strict=False)]
    return agrees.index(False) if False in agrees else len(agrees), sum(agrees)


def match_tree(
    target_tokens: Sequence[int] | Tensor, tokens: Sequence[int] | Tensor, parents: Sequence[int] | Tensor
) -> tuple[list[int], int]:
    """The match rule for one session's token tree, on the host: returns (path, next_token).

    tokens [num_nodes] and parents [num_nodes]: of each node its token, and its parent's index or -1 for the base.
    target_tokens [num_nodes + 1]: the target's own draw after the base, then after each node, with the noise of its
    depth. The path goes down while a child has the token that was drawn; of two such children it takes the first.
    """
    drawn = list(map(int, target_tokens))
    path = trees.accepted(drawn, list(map(int, tokens)), list(map(int, parents)))
    return path, drawn[path[-1] + 1 if path else 0]


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
    [batch, max_len], final_noise [batch]. The two vocabularies may differ in padding: a token that one lacks has
    probability zero there. After a rejection the next token is drawn from max(p - q, 0), else from p.
    """
    num_accepted = _prefix(decide_ratio(target_probs, draft_tokens, draft_probs, num_drafted, accept_noise))
    weights = _residual(target_probs, draft_probs, num_accepted, num_accepted < num_drafted)
    return num_accepted, draw(weights, final_noise)


def decide_ratio(
    target_probs: Tensor, draft_tokens: Tensor, draft_probs: Tensor, num_drafted: Tensor, accept_noise: Tensor
) -> Tensor:
    """Returns [batch, max_len]: which drafted tokens pass their own test, even after a rejection (`verify_ratio`)."""
    p, q = _probs_of_drafted(target_probs, draft_tokens, draft_probs)  # [batch, max_len]
    # Strict: with <= a token of probability zero would be accepted at noise 0.
    return (accept_noise.double() * q < p) & (q > 0) & _drafted(draft_tokens, num_drafted)


def ratios(target_probs: Tensor, draft_tokens: Tensor, draft_probs: Tensor, num_drafted: Tensor) -> Tensor:
    """Returns min(1, p/q) of each drafted token, also after a rejection; zero in padding [batch, max_len], fp64.

    Where a row of target_probs is NaN since rules leave it no token, which may be after a rejection, it is zero.
    """
    p, q = _probs_of_drafted(target_probs, draft_tokens, draft_probs)
    ratio = torch.where(q > 0, p / q.clamp(min=torch.finfo(q.dtype).tiny), 0.0).clamp(max=1.0)
    return torch.where(_drafted(draft_tokens, num_drafted), ratio, 0.0).nan_to_num(0.0)


def overlaps(target_probs: Tensor, draft_probs: Tensor, num_drafted: Tensor) -> Tensor:
    """Returns the sum of min(p, q) over the vocabulary at each drafted position; 0 in padding [batch, max_len], fp64.

    This is the mean of min(1, p/q) under q, the observation of Eq. (3) without the variance of the token that was
    drawn: a drafter's choice of a token cannot change it at that token's own position. Where a row of target_probs is
    NaN since rules leave it no token, which may be after a rejection, it is zero.
    """
    vocab = min(target_probs.shape[-1], draft_probs.shape[-1])
    columns = [  # one at a time: no third copy of everything
        torch.minimum(target_probs[:, column, :vocab], draft_probs[:, column, :vocab]).sum(-1).double()
        for column in range(draft_probs.shape[1])
    ]
    found = torch.stack(columns, 1) if columns else draft_probs.new_zeros(draft_probs.shape[:2]).double()
    return torch.where(_drafted(draft_probs, num_drafted), found, 0.0).nan_to_num(0.0)


def _drafted(columns: Tensor, num_drafted: Tensor) -> Tensor:
    """True where columns [batch, max_len, ...] hold drafted tokens, False in padding [batch, max_len]."""
    return torch.arange(columns.shape[1], device=columns.device) < num_drafted.unsqueeze(1)


def _prefix(accepted: Tensor) -> Tensor:
    """Returns the length [batch] of the run of True at the start of each row."""
    return accepted.long().cumprod(1).sum(1)


def _probs_of_drafted(target_probs: Tensor, draft_tokens: Tensor, draft_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Returns p and q of the drafted tokens, both [batch, max_len] fp64."""
    return _at(target_probs[:, : draft_tokens.shape[1]], draft_tokens), _at(draft_probs, draft_tokens)


def _at(probs: Tensor, tokens: Tensor) -> Tensor:
    """Returns probs [batch, max_len, vocab] at tokens [batch, max_len]; zero for an id outside the vocabulary."""
    vocab = probs.shape[-1]
    found = probs.gather(-1, tokens.clamp(0, vocab - 1).unsqueeze(-1)).squeeze(-1).double()
    return torch.where((tokens >= 0) & (tokens < vocab), found, 0.0)


def _residual(target_probs: Tensor, draft_probs: Tensor, column: Tensor, rejected: Tensor) -> Tensor:
    """Returns weights [batch, vocab] of the next token at `column` [batch]: p, less q where a token was rejected."""
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
