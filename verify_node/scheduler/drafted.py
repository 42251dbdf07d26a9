"""The drafted tokens of a session that a round could verify, whoever drafted them. Changes nothing."""

from collections import OrderedDict
from collections.abc import Container, Sequence
from heapq import nlargest, nsmallest
from typing import NamedTuple

from goodspeed.exact import trees
from goodspeed.ngram.drafting import Continuation, draft
from goodspeed.ngram.index import GrowingText
from goodspeed.wire import probabilities
from verify_node.session.client import Client
from verify_node.session.drafted import NOTHING, Drafted
from verify_node.session.session import Session


def of_draft(session: Session) -> Drafted:
    """The rest of the session's newest draft, as long as the text may grow; of a tree all that is left.

    Under match what it was drawn from is of no use, and under ratio nothing is of use without.
    """
    drafted, by_ratio = session.drafted, session.verification == "ratio"
    if drafted is None or not session.allows_drafts_of(drafted.source) or (by_ratio and drafted.proposal is None):
        return NOTHING
    found = drafted if by_ratio else drafted._replace(proposal=None)
    return found if found.parents is not None else found.cut(session.max_length)


def of_self(tokens: tuple[int, ...], claimed: tuple[float, ...]) -> Drafted:
    """The verify node's own draft from the session's text."""
    return Drafted(tokens, probabilities.encode(claimed), "self") if tokens else NOTHING


def of_form(tokens: tuple[int, ...]) -> Drafted:
    """Tokens that the constraint on the output forces: the verify node's own draft, and certain."""
    return Drafted(tokens, bytes(len(tokens)), "self", is_forced=True) if tokens else NOTHING


def claimed_probabilities(session: Session, drafted: Drafted) -> list[float]:
    """The calibrated probability of each token given those before it, as this session's rule may use it."""
    if drafted.is_forced:
        return [1.0] * len(drafted.tokens)
    if session.verification == "ratio" or not drafted.codes:
        return [min(session.acceptance.value, session.acceptance_bound.most)] * len(drafted.tokens)
    if drafted.parents is not None:
        return _probabilities_in_tree(session.client, drafted, drafted.parents)
    return session.client.calibration(drafted.source or "model").probabilities(drafted.codes)


def _probabilities_in_tree(client: Client, drafted: Drafted, parents: tuple[int, ...]) -> list[float]:
    """As `claimed_probabilities`. After the same token only one can be right: so all that follow it sum to 1 at most.

    No alternative is likelier than the first choice.
    """
    found = client.calibration(drafted.source or "model").probabilities(drafted.codes)
    others = trees.alternatives(parents)
    claimed = client.calibration("alternative").probabilities(bytes([drafted.codes[node] for node, _ in others]))
    left: dict[int, float] = {}  # by first choice: what its probabilities and those of the alternatives so far leave
    for (node, chosen), one in zip(others, claimed, strict=True):
        room = left.get(chosen, 1.0 - found[chosen])
        found[node] = max(0.0, min(one, found[chosen], room))
        left[chosen] = room - found[node]
    return found


MAX_LENGTH = 8
"""Longest draft from a session's own text."""

MAX_DRAFTS = 32
"""Texts that are looked up for one round, at 20 to 100 us each."""

TRIED_AGAIN = 8
"""Of these at least so many are texts in which nothing was found the last time, if there are so many."""

MAX_INDEXED = 16_384
"""Tokens that are indexed for one round, in about 5 ms, or one text that is longer. The others come in later rounds."""

MAX_TOKENS = 4_000_000
"""Tokens of the texts that are indexed at once, about 100 MB; the text that was drafted from longest ago goes first."""

LEAST_PROBABILITY = 0.03
"""Path probabilities below which nothing is drafted, however cheap a token is."""


class Wanting(NamedTuple):
    """A session that nobody else drafts for in this round."""

    session: Session
    worth: float  # of one token
    least_probability: float  # path probability below which a token is not worth its time


class SelfDrafts:
    """The indexes of the sessions' own texts."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._texts: OrderedDict[bytes, GrowingText] = OrderedDict()
        self._misses: dict[bytes, int] = {}  # when nothing was found, if that is so the last time, in drafts made
        self._num_made = 0

    def draft(self, wanting: Sequence[Wanting]) -> list[tuple[Session, Drafted]]:
        """Drafts from the sessions' own texts, for those of the highest worth."""
        found, num_indexed = [], 0
        for session, _, least_probability in self._first(wanting):
            num_new = self._num_unknown(session)
            if num_indexed and num_indexed + num_new > MAX_INDEXED:
                continue
            num_indexed += num_new
            drafted = self._draft(session, max(LEAST_PROBABILITY, least_probability))
            self._num_made += 1
            if drafted.tokens:
                self._misses.pop(session.session_id, None)
                found.append((session, drafted))
            else:
                self._misses[session.session_id] = self._num_made
        return found

    def keep(self, open_sessions: Container[bytes]) -> None:
        """Forgets the texts of all other sessions."""
        for session_id in [key for key in self._texts if key not in open_sessions]:
            self._num_tokens -= len(self._texts.pop(session_id))
        self._misses = {key: made for key, made in self._misses.items() if key in open_sessions}

    def _first(self, wanting: Sequence[Wanting]) -> Sequence[Wanting]:
        """Sessions that are drafted for now: by worth, and in turn where the text said nothing the last time."""
        worth_it = [one for one in wanting if one.least_probability < 1.0]
        if len(worth_it) <= MAX_DRAFTS:
            return worth_it
        missed = [one for one in worth_it if one.session.session_id in self._misses]
        fresh = [one for one in worth_it if one.session.session_id not in self._misses]
        again = max(min(TRIED_AGAIN, len(missed)), MAX_DRAFTS - len(fresh))
        return [
            *nlargest(MAX_DRAFTS - again, fresh, key=lambda one: one.worth),
            *nsmallest(again, missed, key=lambda one: self._misses[one.session.session_id]),
        ]

    def _draft(self, session: Session, least_probability: float) -> Drafted:
        """A draft that ends before the text does: the end itself the target draws in the same round, drafted or not."""
        stop_ids = session.opened.stop_ids
        if session.forced_next:
            return of_form(_before(session.forced_next[: session.max_length], stop_ids))
        found = self._find(session, min(MAX_LENGTH, session.max_length), least_probability)
        tokens = _before(found.tokens, stop_ids)
        return of_self(tokens, found.probabilities[: len(tokens)])

    def _find(self, session: Session, length: int, least_probability: float) -> Continuation:
        """The continuation that the text's index finds."""
        opened = session.opened
        banned = opened.stop_ids if len(session.tokens) < session.may_stop_at else ()
        text = self._text(session)
        return draft(text, (), length, sampling=opened.sampling, least_probability=least_probability, banned=banned)

    def _num_unknown(self, session: Session) -> int:
        known = self._texts.get(session.session_id)
        return len(session.tokens) - (len(known) if known is not None else 0)

    def _text(self, session: Session) -> GrowingText:
        """The index of the session's text as it is now."""
        key = session.session_id
        text = self._texts.setdefault(key, GrowingText())
        self._texts.move_to_end(key)
        self._num_tokens -= len(text)
        text.follow(session.tokens)
        self._num_tokens += len(text)
        while self._num_tokens > self._max_tokens and len(self._texts) > 1:
            _, oldest = self._texts.popitem(last=False)
            self._num_tokens -= len(oldest)
        return text


def _before(tokens: tuple[int, ...], stop_ids: Sequence[int]) -> tuple[int, ...]:
    """The tokens before the first of stop_ids."""
    return tokens[: next((at for at, token in enumerate(tokens) if token in stop_ids), len(tokens))]
