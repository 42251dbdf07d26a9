"""Fits the model of round time to measured samples by least squares without negative coefficients, and rates the fit.

Deterministic. A single linear term is fitted exactly: with four coefficients, every subset that may be positive can be
tried. Errors are weighed by 1 / sqrt(seconds), because timing noise grows with the time: otherwise the errors
of a few long rounds would outweigh those of many short rounds.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from goodspeed.fair.round_time import CostModel, Linear, Roofline, Sample

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MAX_ALTERNATIONS = 60
PATIENCE = 6  # alternations without a gain
QUANTILES = (0.15, 0.3, 0.5, 0.7, 0.85)
WORTH_A_TERM = 0.999  # one more term must reduce the error below this share
EXACT = 1e-18  # squared error, as a share, of a fit that is exact but for rounding
RIDGE = 1e-13
FACES = np.array([face for face in product((0, 1), repeat=4) if any(face)])  # [15, 4] which may be above 0
SAME_FACE = (FACES[:, :, None] & FACES[:, None, :]) > 0  # [15, 4, 4]


def fit_roofline(samples: Sequence[Sample], num_terms: int = 2) -> Roofline:
    """Fits the maximum of up to `num_terms` linear terms; never a worse fit than one term, AdaSpec's Eq. (2).

    Alternates between assigning each sample to the term that is largest there and refitting each term to its samples.
    That finds a local optimum only, so there are many starts: every term so far is split in two by every feature, at
    several places. Omits a term that gains nothing. Raises ValueError if there are no samples.
    """
    features, seconds = _arrays(samples)
    best = _non_negative(features, seconds)[None]  # [terms, 4]
    while len(best) < num_terms:
        found = [_alternate(features, seconds, owner) for owner in _splits(features, seconds, best)]
        chosen = min(found, key=lambda terms: _error(features, seconds, terms), default=best)
        left = _error(features, seconds, best)
        if left <= EXACT * seconds.sum() or _error(features, seconds, chosen) > WORTH_A_TERM * left:
            break
        best = chosen
    return Roofline(tuple(Linear(*term) for term in best.tolist()))


def r_squared(model: CostModel, samples: Sequence[Sample]) -> float:
    """Returns the share of the samples' variance that the model explains; 1 or 0 where all samples are equal."""
    features, seconds = _arrays(samples)
    residual = float(((seconds - model.round_s(features[:, 1], features[:, 2], features[:, 3])) ** 2).sum())
    variance = float(((seconds - seconds.mean()) ** 2).sum())
    if variance <= 1e-24 * float((seconds**2).sum()):
        return float(residual <= 1e-18 * float((seconds**2).sum()))
    return 1.0 - residual / variance


def _arrays(samples: Sequence[Sample]) -> tuple[Floats, Floats]:
    """Returns features [samples, 4] (one, tokens, sessions, context) and seconds [samples]."""
    if not samples:
        raise ValueError("no samples to fit to")
    rows = [(1.0, sample.num_tokens, sample.num_sessions, sample.context_tokens) for sample in samples]
    return np.array(rows, np.float64), np.array([sample.seconds for sample in samples], np.float64)


def _non_negative(features: Floats, seconds: Floats) -> Floats:
    """Returns the best non-negative coefficients [4].

    The best solution lies inside some face of the positive orthant, where it is the plain least squares over the
    nonzero coefficients. So all 15 faces are solved at once, and the best non-negative solution is taken.
    """
    weights = 1.0 / np.sqrt(seconds)
    scales = np.maximum(features.max(axis=0), 1.0)  # contexts are in the thousands, and the constant is one
    rows, wanted = features * weights[:, None] / scales, seconds * weights
    squares = rows.T @ rows
    squares += RIDGE * squares.max() * np.eye(4)  # for features that are constant, or vary only together
    solutions = np.linalg.solve(np.where(SAME_FACE, squares, np.eye(4)), (FACES * (rows.T @ wanted))[..., None])[..., 0]
    errors = ((wanted[:, None] - rows @ solutions.T) ** 2).sum(axis=0)  # [faces]
    best = np.where((solutions >= 0.0).all(axis=1), errors, np.inf).argmin()
    coefficients: Floats = solutions[best] / scales
    return coefficients


def _splits(features: Floats, seconds: Floats, terms: Floats) -> Iterator[NDArray[np.int64]]:
    """Yields assignments of samples to one more term: splits each term's samples by each feature or by their time."""
    owner = (features @ terms.T).argmax(axis=1)  # [samples]
    for term in range(len(terms)):
        mine = owner == term
        for values in (*features.T[1:], seconds, seconds / np.maximum(features[:, 1], 1.0)):
            for low in sorted({float(value) for value in np.quantile(values[mine], QUANTILES)}) if mine.any() else ():
                upper = mine & (values > low)
                if upper.any() and (mine & ~upper).any():
                    yield np.where(upper, len(terms), owner)


def _alternate(features: Floats, seconds: Floats, owner: NDArray[np.int64]) -> Floats:
    """Returns the best terms [terms, 4] seen while alternating from an assignment; a step may worsen the fit."""
    num_terms = int(owner.max()) + 1
    terms = np.zeros((num_terms, 4))
    best, least, best_at = terms, np.inf, 0
    for number in range(MAX_ALTERNATIONS):
        for term in range(num_terms):
            mine = owner == term
            if mine.any():
                terms[term] = _non_negative(features[mine], seconds[mine])
        error = _error(features, seconds, terms)
        if error < least:
            best, least, best_at = terms.copy(), error, number
        before, owner = owner, (features @ terms.T).argmax(axis=1)
        if (before == owner).all() or number - best_at > PATIENCE:
            break
    return best


def _error(features: Floats, seconds: Floats, terms: Floats) -> float:
    left = (features @ terms.T).max(axis=1) - seconds
    return float((left**2 / seconds).sum())
