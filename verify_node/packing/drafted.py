"""The drafted tokens of a session that a round could verify, whoever drafted them: a draft, an offer, or neither.

Changes nothing. Knows nothing about which of them are worth it, or about memory.
"""

from collections.abc import Sequence
from typing import NamedTuple

from goodspeed.exact import trees
from goodspeed.exact.positions import cut
from goodspeed.wire import odds
from goodspeed.wire.fields import DraftSource
from verify_node.session.client import Client
from verify_node.session.session import Session


class Drafted(NamedTuple):
    """Tokens that may continue a session's text, in order, or as a tree."""

    tokens: tuple[int, ...] = ()
    codes: bytes = b""  # of their claimed odds (`odds.encode`); empty: none are claimed
    num_ngram: int = 0  # leading tokens that an index drafted
    source: DraftSource | None = None  # None: they are a Draft
    proposal: bytes | None = None
    parents: tuple[int, ...] | None = None  # of each token the index of the one that it follows, or -1; None: a chain
    is_forced: bool = False  # by the form that the output is to keep: each is certain

    def pick(self, nodes: Sequence[int]) -> "Drafted":
        """These nodes of a tree, ascending, each with the one that it follows. ValueError for a chain."""
        if self.parents is None:
            raise ValueError("these tokens are a chain; cut it")
        if not nodes:
            return NOTHING
        parents = trees.pick(self.parents, nodes)
        return Drafted(
            tokens=tuple([self.tokens[node] for node in nodes]),
            codes=bytes([self.codes[node] for node in nodes]),
            num_ngram=len(nodes) if self.num_ngram else 0,
            source=self.source,
            parents=None if trees.is_chain(parents) else parents,
        )

    def cut(self, length: int) -> "Drafted":
        """The first `length` tokens of a chain."""
        if length >= len(self.tokens):
            return self
        return Drafted(
            tokens=self.tokens[:length],
            codes=self.codes[:length],
            num_ngram=min(self.num_ngram, length),
            source=self.source,
            is_forced=self.is_forced,
            proposal=cut(self.proposal, length) if self.proposal is not None else None,
        )


NOTHING = Drafted()


def of_draft(session: Session) -> Drafted:
    """The session's draft, if one has arrived. Under match what it was drawn from is of no use."""
    draft = session.draft
    if draft is None:
        return NOTHING
    by_ratio = session.verification == "ratio"
    return Drafted(draft.tokens, draft.odds or b"", draft.num_ngram, None, draft.proposal if by_ratio else None)


def of_offer(session: Session) -> Drafted:
    """What is left of the newest offer, as long as the text may grow; of a tree all that is left."""
    offered = session.offered
    if offered is None or not session.allows_offers_of(offered.source):
        return NOTHING
    _, _, tokens, codes, source, parents = offered
    drafted = Drafted(tokens, codes, len(tokens) if source == "ngram" else 0, source, None, parents)
    return drafted if parents is not None else drafted.cut(session.max_length)


def of_self(tokens: tuple[int, ...], claimed: tuple[float, ...]) -> Drafted:
    """What the verify node itself drafted from the session's own text."""
    return Drafted(tokens, odds.encode(claimed), len(tokens), "self") if tokens else NOTHING


def of_form(tokens: tuple[int, ...]) -> Drafted:
    """What the form of the session's output says must follow: the verify node's own draft, and certain."""
    return Drafted(tokens, bytes(len(tokens)), len(tokens), "self", is_forced=True) if tokens else NOTHING


def claimed_odds(session: Session, drafted: Drafted) -> list[float]:
    """The calibrated odds of each token given those before it, as far as they may count for this session's rule."""
    if drafted.is_forced:
        return [1.0] * len(drafted.tokens)
    if session.verification == "ratio" or not drafted.codes:
        return [min(session.acceptance.value, session.acceptance_bound.most)] * len(drafted.tokens)
    client, num_ngram = session.client, drafted.num_ngram
    if drafted.parents is not None:
        return _odds_in_tree(client, drafted, drafted.parents)
    if drafted.source is not None:
        return client.calibration(drafted.source).odds(drafted.codes)
    if not num_ngram:
        return client.calibration("model").odds(drafted.codes)
    first = client.calibration("ngram").odds(drafted.codes[:num_ngram])
    return first + client.calibration("model").odds(drafted.codes[num_ngram:])


def _odds_in_tree(client: Client, drafted: Drafted, parents: tuple[int, ...]) -> list[float]:
    """As `claimed_odds`. After the same token only one can be right: the odds of all that follow it sum to 1 at most.

    No alternative is likelier than the first choice.
    """
    found = client.calibration(drafted.source or "model").odds(drafted.codes)
    others = trees.alternatives(parents)
    claimed = client.calibration("alternative").odds(bytes([drafted.codes[node] for node, _ in others]))
    left: dict[int, float] = {}  # by first choice: what its odds and those of the alternatives so far leave
    for (node, chosen), one in zip(others, claimed, strict=True):
        room = left.get(chosen, 1.0 - found[chosen])
        found[node] = max(0.0, min(one, found[chosen], room))
        left[chosen] = room - found[node]
    return found
