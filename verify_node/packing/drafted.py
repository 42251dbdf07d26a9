"""The drafted tokens of a session that a round could verify, whoever drafted them. Changes nothing."""

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
    source: DraftSource | None = None  # None where there are none
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
            codes=bytes([self.codes[node] for node in nodes]) if self.codes else b"",
            source=self.source,
            parents=None if trees.is_chain(parents) else parents,
        )

    def cut(self, length: int) -> "Drafted":
        """The first `length` tokens; of a tree those are the chain of first choices, if they are sent first."""
        if length >= len(self.tokens):
            return self
        if self.parents is not None:
            return self.pick(range(length))
        return Drafted(
            tokens=self.tokens[:length],
            codes=self.codes[:length],
            source=self.source,
            is_forced=self.is_forced,
            proposal=cut(self.proposal, length) if self.proposal is not None else None,
        )


NOTHING = Drafted()


def of_draft(session: Session) -> Drafted:
    """What is left of the session's newest draft, as long as the text may grow; of a tree all that is left.

    Under match what it was drawn from is of no use, and under ratio nothing is of use without.
    """
    drafted, by_ratio = session.drafted, session.verification == "ratio"
    if drafted is None or not session.allows_drafts_of(drafted.source) or (by_ratio and drafted.proposal is None):
        return NOTHING
    proposal = drafted.proposal if by_ratio else None
    found = Drafted(drafted.tokens, drafted.codes, drafted.source, proposal, drafted.parents)
    return found if drafted.parents is not None else found.cut(session.max_length)


def of_self(tokens: tuple[int, ...], claimed: tuple[float, ...]) -> Drafted:
    """What the verify node itself drafted from the session's own text."""
    return Drafted(tokens, odds.encode(claimed), "self") if tokens else NOTHING


def of_form(tokens: tuple[int, ...]) -> Drafted:
    """What the form of the session's output says must follow: the verify node's own draft, and certain."""
    return Drafted(tokens, bytes(len(tokens)), "self", is_forced=True) if tokens else NOTHING


def claimed_odds(session: Session, drafted: Drafted) -> list[float]:
    """The calibrated odds of each token given those before it, as far as they may count for this session's rule."""
    if drafted.is_forced:
        return [1.0] * len(drafted.tokens)
    if session.verification == "ratio" or not drafted.codes:
        return [min(session.acceptance.value, session.acceptance_bound.most)] * len(drafted.tokens)
    if drafted.parents is not None:
        return _odds_in_tree(session.client, drafted, drafted.parents)
    return session.client.calibration(drafted.source or "model").odds(drafted.codes)


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
