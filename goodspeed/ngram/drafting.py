"""Drafts the continuation of a text, with the acceptance probability of each token.

Under the match rule the target draws with noise that any node can compute. A draft drawn with the same noise from a
similar distribution is the same token. Top-k and top-p are not used: they drop tokens that are unlikely for the target,
but the blend of a few earlier tokens does not show which tokens these are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from math import exp, log
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from goodspeed.exact.noise_at import match_key, noise_at
from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.ngram.matching import blend, find, follow, survivors

if TYPE_CHECKING:
    from goodspeed.exact.logits.truncation import Sampling


class Continuation(NamedTuple):
    """A draft after a text. probabilities[i]: acceptance probability of token i if all before it are accepted."""

    tokens: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()

    @property
    def num_expected(self) -> float:
        """Returns the expected number of accepted tokens."""
        return sum(accumulate(self.probabilities, mul), 0.0)


class _Fit(NamedTuple):
    """Coefficients of a logistic regression for a drafted token's acceptance, on features known at drafting.

    Fitted on drafts up to their first error, at every position of the texts that `experiments.benchmarks.ngram` writes,
    with own texts and histories together. The form was chosen by log loss on held-out domains; experiments/LOG.md has
    the calibration and the rejected forms.
    """

    constant: float
    order: float  # of ln(tokens of the longest match): long matches tend to continue
    places: float  # of ln(matches)
    distinct: float  # of ln(distinct next tokens): varied continuations stay unpredictable
    unlike: float  # of ln(1 - share of the drafted token)
    noise: float  # of ln(Exp noise of the drafted token): with low noise the target draws even an unlikely token


_GREEDY = _Fit(-1.13, 1.04, 0.12, -1.26, -0.56, 0.0)
_DRAWN = _Fit(-1.39, 0.57, 0.94, -2.17, -0.74, -0.32)

_LEAST_REST = 1e-6
"""Lower bound of 1 - share: the regression saw no smaller value."""


def draft(
    text: GrowingText,
    histories: Sequence[NgramIndex],
    length: int,
    *,
    sampling: Sampling,
    least_probability: float = 0.3,
    banned: Collection[int] = (),
    stop_ids: Collection[int] = (),
    vocab_size: int = 1 << 31,
) -> Continuation:
    """Returns a draft of at most `length` tokens, in about 25 us each with a million tokens of history.

    The draft ends where no match continues, and before the product of probabilities falls below least_probability. At
    temperature 0 each token is the likeliest in a blend of all matches, else it is drawn with the match rule's noise.
    banned: ids that are never drafted. The draft also ends before one of stop_ids, which the target draws in the same
    round even if it is not drafted, and before a token that the target lacks, as documents may have. The text is
    changed temporarily and restored: one thread at a time per text.
    """
    tokens, first = text.tokens, len(text.tokens)
    drafted: list[int] = []
    probabilities: list[float] = []
    path_probability = 1.0
    matches = find(text, histories)
    try:
        while matches and len(drafted) < length:
            nexts = follow(matches, len(drafted))
            shares, num_places = blend(nexts, banned)
            if not shares:
                break
            token, noise = _choose(shares, sampling, first - 1 + len(drafted))
            if token in stop_ids or token >= vocab_size:
                break
            chance = _probabilities(sampling, matches[0].order, num_places, len(shares), shares[token], noise)
            path_probability *= chance
            if path_probability < least_probability:
                break
            drafted.append(token)
            probabilities.append(chance)
            tokens.append(token)  # a match may continue into the draft itself
            matches = survivors(matches, nexts, token)
    finally:
        del tokens[first:]
    return Continuation(tuple(drafted), tuple(probabilities))


def _choose(shares: dict[int, float], sampling: Sampling, position: int) -> tuple[int, float]:
    """Chooses a token of the blend at an absolute position; returns the token and its noise (1 at temperature 0)."""
    if sampling.temperature == 0:
        return max(shares, key=shares.__getitem__), 1.0
    best, token, noise = -1.0, -1, 1.0
    noises = noise_at(match_key(sampling.seed, position), shares)
    for (candidate, share), candidate_noise in zip(shares.items(), noises, strict=True):
        if share > best * candidate_noise:
            best, token, noise = share / candidate_noise, candidate, candidate_noise
    return token, noise


def _probabilities(sampling: Sampling, order: int, num_places: int, distinct: int, share: float, noise: float) -> float:
    fit = _DRAWN if sampling.temperature else _GREEDY
    logit = (
        fit.constant
        + fit.order * log(order)
        + fit.places * log(num_places)
        + fit.distinct * log(distinct)
        + fit.unlike * log(max(1.0 - share, _LEAST_REST))
        + fit.noise * log(noise)
    )
    return 1.0 / (1.0 + exp(-logit))
