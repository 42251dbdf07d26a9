"""Tokens of the clients of array worlds and the estimates of them, round by round."""

from dataclasses import dataclass

import numpy as np

from experiments.simulation.arrays.worlds import Worlds
from goodspeed.fair.policies.base import Floats, Ints


@dataclass(frozen=True)
class Trace:
    """Arrays [rounds, worlds, clients]."""

    tokens: Ints  # delivered in the round
    lengths: Ints  # drafted in it
    acceptance: Floats  # estimates after it
    goodput: Floats  # likewise

    @property
    def running_goodput(self) -> Floats:
        """Tokens per round so far."""
        rounds = np.arange(1, len(self.tokens) + 1)[:, None, None]
        running: Floats = self.tokens.cumsum(axis=0) / rounds
        return running


def trace(worlds: Worlds, num_rounds: int) -> Trace:
    """So many rounds more. The first round of all is the prompts', in which nobody drafts: it is not among them."""
    if worlds.num_rounds == 0:
        worlds.step()
    shape = (num_rounds, *worlds.lengths.shape)
    tokens, lengths = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    acceptance, goodput = np.zeros(shape), np.zeros(shape)
    for number in range(num_rounds):
        worlds.step()
        tokens[number], lengths[number] = worlds.accepted + 1, worlds.drafted
        acceptance[number], goodput[number] = worlds.acceptance, worlds.goodput
    return Trace(tokens, lengths, acceptance, goodput)
