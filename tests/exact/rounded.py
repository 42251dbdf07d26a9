"""The probabilities that a proposal's tokens are sampled from, without its bytes."""

import torch
from torch import Tensor

from goodspeed.exact.proposals import Dense, Lattice


def rounded(proposal: Dense | Lattice) -> Tensor:
    """Returns them [batch, vocab], fp32, on the proposal's device; each row sums to 1."""
    if isinstance(proposal, Dense):
        values = proposal.values.double()
        return (values / values.sum(1, keepdim=True)).float()
    shares = proposal.weights.double() / proposal.weights.sum(1, keepdim=True)
    probs = torch.zeros(len(shares), proposal.vocab_size, device=shares.device)
    return probs.scatter_(1, proposal.ids, shares.float())
