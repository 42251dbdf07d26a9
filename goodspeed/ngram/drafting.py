"""A draft of the tokens that may follow a text, and the probability that the target accepts each.

Under match the target draws with noise that anybody can compute: a draft drawn with the same noise from a similar
distribution is the same token.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from math import exp, log
from operator import mul
from typing import NamedTuple, Protocol

from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.ngram.matching import blend, find, follow, survivors
from goodspeed.ngram.noise_at import match_key, noise_at


class Sampling(Protocol):
    """The sampling parameters that matter here; the wire's `messages.Sampling` has this interface.

    Top-k and top-p are left out: they cut off what the target finds unlikely, and a distribution of the few tokens that
    were seen before does not know what that is.
    """

    @property
    def temperature(self) -> float: ...

    @property
    def seed(self) -> int: ...


class Continuation(NamedTuple):
    """Tokens that may follow a text. probabilities[i]: of token i being accepted, given that all before it were."""

    tokens: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()

    @property
    def num_expected(self) -> float:
        """Returns the expected number of accepted ones: each is, if it and all before it agree with the target."""
        return sum(accumulate(self.probabilities, mul), 0.0)


class _Fit(NamedTuple):
    """A logistic regression of whether a drafted token is accepted, on what is known when it is drafted.

    Fitted on drafts up to their first error at every position of the texts that `experiments.benchmarks.ngram` writes,
    from own texts and with histories together. The form was chosen by the log loss on domains that were left out;
    experiments/LOG.md has the calibration, and the forms that were worse.
    """

    constant: float
    order: float  # of ln(tokens of the longest match): texts that agreed for long go on agreeing
    places: float  # of ln(matches)
    distinct: float  # of ln(distinct next tokens): where the text went different ways before, it will again
    unlike: float  # of ln(1 - share of the drafted token)
    noise: float  # of ln(Exp noise of the drafted token): with little noise the target draws it even if it is unlikely


_GREEDY = _Fit(-1.13, 1.04, 0.12, -1.26, -0.56, 0.0)
_DRAWN = _Fit(-1.39, 0.57, 0.94, -2.17, -0.74, -0.32)

_LEAST_REST = 1e-6
"""1 - share is taken as this at least: the regression saw no less."""


def draft(
    text: GrowingText,
    histories: Sequence[NgramIndex],
    length: int,
    *,
    sampling: Sampling,
    least_probability: float = 0.3,
    banned: Collection[int] = (),
) -> Continuation:
    """Returns at most `length` tokens that may follow the text, in about 25 us each with a million tokens of history.

    It ends where nothing is known, and before a token with which the product of probabilities is below
    least_probability. At temperature 0 each token is the likeliest of a blend of all matches, else it is drawn with
    the match rule's noise. `banned` ids are never drafted. The text is as before when this returns; no two threads may
    draft for it at once.
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
            chance = _probabilities(sampling, matches[0].order, num_places, len(shares), shares[token], noise)
            path_probability *= chance
            if path_probability < least_probability:
                break
            drafted.append(token)
            probabilities.append(chance)
            tokens.append(token)  # a match may run on into the draft itself
            matches = survivors(matches, nexts, token)
    finally:
        del tokens[first:]
    return Continuation(tuple(drafted), tuple(probabilities))


def _choose(shares: dict[int, float], sampling: Sampling, position: int) -> tuple[int, float]:
    """Returns a token of the blend for an absolute position, and its noise (1 at temperature 0)."""
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
