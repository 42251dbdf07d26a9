"""Compares a draft model's confidence with acceptance along recorded texts: bare, as a draft node claims it, and as the
verify node's calibration corrects that while texts come (AdaSpec's Figs. 7 and 8)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, product
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from experiments.simulation.texts import proposals
from experiments.simulation.texts.proposals import Text
from goodspeed.wire import probabilities
from verify_node.clients.calibration import Calibration, TextBias

BARE, CLAIMED, CALIBRATED = "confidence", "before", "after"
KNOWN_BY = (BARE, CLAIMED, CALIBRATED)
"""A draft model's own probability, which the paper takes for acceptance; a draft node's claim; that one calibrated."""

NUM_BINS = 10
"""Of probabilities, equally wide, as in the paper's Fig. 7."""


class Verified(NamedTuple):
    """A draft along a recorded text, and what was told of it before it was verified."""

    probabilities: dict[str, list[float]]  # by KNOWN_BY: of each token, given that those before it are accepted
    num_accepted: int


def verified(texts: Sequence[Text], draft_model: str, length: int) -> Iterator[Verified]:
    """Yields the drafts of one client, text after text; what is learned of an outcome follows its draft."""
    calibration = Calibration()
    for text in texts:
        bias = TextBias()
        path = text.models[draft_model]
        bare, claims = proposals.decode(proposals.read(path.confidence)), probabilities.encode(path.claims)
        begin = 0
        while begin < text.num_tokens:
            here = slice(begin, begin + length)
            expected = calibration.probabilities(claims[here])
            known = (bare[here], proposals.decode(claims[here]), bias.corrected(expected))
            num_accepted = (path.agreed[here] + "0").index("0")
            yield Verified(dict(zip(KNOWN_BY, known, strict=True)), num_accepted)
            bias.observe(expected, num_accepted)
            calibration.observe(claims[here], num_accepted)
            begin += num_accepted + 1  # the target's own token follows


def reliability(
    recordings: str, temperatures: Sequence[float], length: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns how far probabilities are off, by draft model, temperature and domain, and the bins that show it.

    recordings: a file; empty: the shipped one. length: of drafts.
    """
    recorded = proposals.load(recordings)
    found: dict[str, Any] = {}
    bins: list[dict[str, Any]] = []
    models = [recorded.stand_in(0), *recorded.title.draft_models[1:]]  # there is one at least
    for model, temperature in product(models, temperatures):
        texts = recorded.at(temperature)
        domains = found.setdefault(model, {}).setdefault(f"{temperature:g}", {})
        for domain in sorted({text.domain for text in texts}):
            own = [text for text in texts if text.domain == domain]
            drafts = list(verified(own, model, length))
            key = {"draft_model": model, "temperature": temperature, "domain": domain}
            of_domain = {by: binned(drafts, by) for by in KNOWN_BY}
            bins += [key | {"known_by": by} | one for by, some in of_domain.items() for one in some]
            domains[domain] = {by: expected_error(some) for by, some in of_domain.items()} | {
                "num": sum(one["tokens"] for one in of_domain[CALIBRATED]),
                "accepted": accepted(drafts),
            }
    return found, bins


def binned(drafts: Sequence[Verified], by: str) -> list[dict[str, Any]]:
    """Returns, by bins, the mean probability and the accepted share of the tokens whose predecessors were accepted."""
    decided = [(draft.probabilities[by][: draft.num_accepted + 1], draft.num_accepted) for draft in drafts]
    told = [(one, at < num_accepted) for known, num_accepted in decided for at, one in enumerate(known)]
    bins: dict[int, list[tuple[float, bool]]] = {}
    for one in told:
        bins.setdefault(min(NUM_BINS - 1, int(NUM_BINS * one[0])), []).append(one)
    means = [(len(some), *np.mean(np.array(some, float), 0)) for _, some in sorted(bins.items())]
    return [{"tokens": num, "predicted": predicted, "agreed": agreed} for num, predicted, agreed in means]


def expected_error(bins: Sequence[Mapping[str, Any]]) -> float:
    """Returns the expected calibration error: the mean distance over bins, by their tokens."""
    off = sum(one["tokens"] * abs(one["predicted"] - one["agreed"]) for one in bins)
    return float(off / sum(one["tokens"] for one in bins))


def accepted(drafts: Sequence[Verified]) -> dict[str, float]:
    """Returns the mean number of a draft's accepted tokens, and of those that were expected (Fig. 8)."""
    expected = {
        by: float(np.mean([sum(accumulate(draft.probabilities[by], mul)) for draft in drafts])) for by in KNOWN_BY
    }
    return expected | {"actual": float(np.mean([draft.num_accepted for draft in drafts]))}
