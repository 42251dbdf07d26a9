"""The two verification rules as pure functions, and the observations of Eq. (3) under each.

Under the match rule a verify node runs `match`, or `match_tree`, per session, on the host. Under the ratio rule it runs
`verify_ratio` (with `decide_ratio`), `ratios` and `overlaps` per batch. `verify_match` is `match` for a batch.

A batch is ragged: row i verifies `num_drafted[i]` of `max_len` columns; the remaining columns are padding and never
read. Both batch rules return (num_accepted [batch], next_token [batch]): the length of the accepted prefix, and the
recovered token after a rejection or the bonus token after full acceptance. No function on batches waits for the device.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from goodspeed.exact import trees
from goodspeed.exact.sampling import draw


def verify_match(target_tokens: Tensor, draft_tokens: Tensor, num_drafted: Tensor) -> tuple[Tensor, Tensor]:
    """Applies the match rule to a batch: accepts drafted tokens before the first that is not the target's own draw.

    The next token is the target's draw at that position. For other programs: the nodes run `match` per session.

    target_tokens [batch, max_len + 1]: the target's draws after 0, 1, ... drafted tokens. draft_tokens
    [batch, max_len], num_drafted [batch].
    """
    drafted = _drafted(draft_tokens, num_drafted)
    num_accepted = _prefix((target_tokens[:, : draft_tokens.shape[1]] == draft_tokens) & drafted)
    return num_accepted, target_tokens.gather(1, num_accepted.unsqueeze(1)).squeeze(1)


def match(target_tokens: Sequence[int], draft_tokens: Sequence[int]) -> tuple[int, int]:
    """Applies the match rule to one session, on the host: returns (num_accepted, agreement).

    target_tokens [num_drafted + 1], draft_tokens [num_drafted]. The next token is target_tokens[num_accepted].
    agreement: drafted tokens equal to the target's draw, including those after a rejection; see Eq. (3).
    """
    agrees = [target == draft for target, draft in zip(target_tokens, draft_tokens, strict=False)]
    return agrees.index(False) if False in agrees else len(agrees), sum(agrees)


def match_tree(
    target_tokens: Sequence[int] | Tensor, tokens: Sequence[int] | Tensor, parents: Sequence[int] | Tensor
) -> tuple[list[int], int]:
    """Applies the match rule to one session's token tree, on the host: returns (path, next_token).

    tokens [num_nodes]: the nodes' tokens. parents [num_nodes]: index of each node's parent; -1: the base.
    target_tokens [num_nodes + 1]: the target's draw after the base, then after each node, with the noise of its depth.
    The path descends while a child has the drawn token; of two such children it takes the first.
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
    """Samples by rejection with min(1, p/q) (Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2).

    target_probs p [batch, max_len + 1, vocab], draft_tokens [batch, max_len], draft_probs q [batch, max_len, vocab]
    (the distributions the tokens were sampled from), num_drafted [batch]. Noise is uniform in [0, 1): accept_noise
    [batch, max_len], final_noise [batch]. The vocabularies may differ in padding: a token missing in one has
    probability zero there. After a rejection the next token is drawn from max(p - q, 0), else from p.
    """
    num_accepted = _prefix(decide_ratio(target_probs, draft_tokens, draft_probs, num_drafted, accept_noise))
    weights = _residual(target_probs, draft_probs, num_accepted, num_accepted < num_drafted)
    return num_accepted, draw(weights, final_noise)


def decide_ratio(
    target_probs: Tensor, draft_tokens: Tensor, draft_probs: Tensor, num_drafted: Tensor, accept_noise: Tensor
) -> Tensor:
    """Returns True for drafted tokens that pass their own test, even after a rejection [batch, max_len]."""
    p, q = _probs_of_drafted(target_probs, draft_tokens, draft_probs)  # [batch, max_len]
    # Strict inequality: <= would accept a token of probability zero at noise 0.
    return (accept_noise.double() * q < p) & (q > 0) & _drafted(draft_tokens, num_drafted)


def ratios(target_probs: Tensor, draft_tokens: Tensor, draft_probs: Tensor, num_drafted: Tensor) -> Tensor:
    """Returns min(1, p/q) of all drafted tokens [batch, max_len], fp64; 0 in padding.

    0 also where a row of target_probs is NaN: after a rejection, rules may permit no token.
    """
    p, q = _probs_of_drafted(target_probs, draft_tokens, draft_probs)
    ratio = torch.where(q > 0, p / q.clamp(min=torch.finfo(q.dtype).tiny), 0.0).clamp(max=1.0)
    return torch.where(_drafted(draft_tokens, num_drafted), ratio, 0.0).nan_to_num(0.0)


def overlaps(target_probs: Tensor, draft_probs: Tensor, num_drafted: Tensor) -> Tensor:
    """Returns the sum of min(p, q) over the vocabulary at each drafted position [batch, max_len], fp64; 0 in padding.

    This is the mean of min(1, p/q) under q: the observation of Eq. (3) without the variance of the drawn token. A
    drafter cannot influence it by the choice of the token at that position. 0 also where a row of target_probs is NaN:
    after a rejection, rules may permit no token.
    """
    vocab = min(target_probs.shape[-1], draft_probs.shape[-1])
    columns = [  # column by column, to avoid a third tensor of full size
        torch.minimum(target_probs[:, column, :vocab], draft_probs[:, column, :vocab]).sum(-1).double()
        for column in range(draft_probs.shape[1])
    ]
    found = torch.stack(columns, 1) if columns else draft_probs.new_zeros(draft_probs.shape[:2]).double()
    return torch.where(_drafted(draft_probs, num_drafted), found, 0.0).nan_to_num(0.0)


def _drafted(columns: Tensor, num_drafted: Tensor) -> Tensor:
    """Returns True for drafted tokens, False for padding [batch, max_len]; columns [batch, max_len, ...]."""
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
    """Returns weights [batch, vocab] of the next token at `column` [batch]: max(p - q, 0) after a rejection, else p."""
    batch = torch.arange(len(column), device=column.device)
    p = target_probs[batch, column]  # [batch, vocab]
    if draft_probs.shape[1] == 0:
        return p
    q = draft_probs[batch, column.clamp(max=draft_probs.shape[1] - 1)][:, : p.shape[1]]
    residual = p.clone()
    residual[:, : q.shape[1]].sub_(q).clamp_(min=0)
    # p <= q everywhere is a rounding effect: p equals q, so p is right.
    use = rejected & (residual.sum(1) > 0)
    return torch.where(use.unsqueeze(1), residual, p)
