"""The sources of drafted tokens by name, and the few traits in which they differ."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

from goodspeed.wire.fields import Drafter, DraftSource

Source: TypeAlias = DraftSource | Literal["own", "forced"]
"""`own`: the verify node's draft model; `forced`: the output's constraint."""

MODEL: Literal["model"] = "model"
NGRAM: Literal["ngram"] = "ngram"
SELF: Literal["self"] = "self"
OWN: Literal["own"] = "own"
FORCED: Literal["forced"] = "forced"


class Traits(NamedTuple):
    """Properties of a source that decide how the nodes treat its tokens."""

    told_as: DraftSource  # in messages, metrics and replies
    is_awaited: bool = False  # a draft model's: rounds may wait for its drafts, and they are its acceptance rate
    is_certain: bool = False  # each token is accepted


TRAITS: Mapping[Source, Traits] = {
    MODEL: Traits(MODEL, is_awaited=True),
    NGRAM: Traits(NGRAM),
    SELF: Traits(SELF),
    OWN: Traits(SELF),
    FORCED: Traits(SELF, is_certain=True),
}


def is_awaited(source: Source | None) -> bool:
    """Returns whether rounds may wait for drafts of this source; None: nothing was drafted."""
    return source is not None and TRAITS[source].is_awaited


def permits(drafter: Drafter, source: Source | None) -> bool:
    """Returns whether a request with this drafter takes drafts of a source."""
    return drafter in ("auto", source)


def by_source(tokens: Mapping[Source, int]) -> dict[DraftSource, int]:
    """Returns the tokens of every source, 0 included, by its reported name."""
    found: dict[DraftSource, int] = dict.fromkeys(get_args(DraftSource), 0)
    for source, number in tokens.items():
        found[TRAITS[source].told_as] += number
    return found
