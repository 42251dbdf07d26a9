"""A draft of the tokens that may follow a text, and the odds that the target accepts each.

Under match the target draws with noise that anybody can compute: a draft drawn with the same noise from a similar
distribution is the same token. Knows nothing about rounds, users or where histories come from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import exp, log
from typing import NamedTuple, Protocol

from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.ngram.matching import blend, find, follow, survivors
from goodspeed.ngram.noise_at import match_key, noise_at


class Sampling(Protocol):
    """What matters here of a request's sampling parameters; the wire's `messages.Sampling` has this interface.

    Top-k and top-p are left out: they cut off what the target finds unlikely, and a distribution of the few tokens that
    were seen before does not know what that is.
    """

    @property
    def temperature(self) -> float: ...

    @property
    def seed(self) -> int: ...


class NgramDraft(NamedTuple):
    """odds[i]: of token i being accepted, given that all before it were."""

    tokens: tuple[int, ...]
    odds: tuple[float, ...]
