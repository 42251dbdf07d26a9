"""Prompt lookup: drafts from the sessions' own prompts and texts, by indexes of their n-grams. Changes no session."""

from collections import OrderedDict
from collections.abc import Container, Sequence
from heapq import nsmallest
from itertools import takewhile
from typing import NamedTuple

from goodspeed.drafting.proposing import banned_at
from goodspeed.drafting.sources import FORCED, SELF
from goodspeed.ngram.drafting import Continuation, draft
from goodspeed.ngram.index import GrowingText
from goodspeed.wire import probabilities
from verify_node.session.draft_tokens import DraftTokens
from verify_node.session.session import Session

MAX_LENGTH = 8
"""Longest draft from a session's own text."""

MAX_DRAFTS = 32
"""Most texts looked up for one round, at 20 to 100 us each."""

MISSED_LOOKUPS = 8
"""Of these, least number of texts whose previous lookup found nothing, if there are so many."""

MAX_INDEXED = 16_384
"""Most new tokens indexed for one round, in about 5 ms, beside one longer text. Other texts wait for later rounds."""

MAX_TOKENS = 4_000_000
"""Most tokens of all indexed texts, about 100 MB; the text least recently drafted from is evicted first."""


class Wanting(NamedTuple):
    """A session without a draft of its draft node in this round."""

    session: Session
    worth: float  # of one token
    least_probability: float  # path probability below which a token is not worth its time


class PromptLookup:
    """Drafts from n-gram indexes of the sessions' own texts."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._texts: OrderedDict[bytes, GrowingText] = OrderedDict()
        self._looked_up: dict[bytes, int] = {}  # number of the latest lookup, by session
        self._misses: set[bytes] = set()  # sessions whose latest lookup found nothing
        self._num_made = 0

    def draft(self, wanting: Sequence[Wanting]) -> list[tuple[Session, DraftTokens]]:
        """Drafts from the sessions' own texts, for the sessions of highest worth."""
        found, num_indexed, has_long = [], 0, False
        for session, _, least_probability in self._first(wanting):
            num_new = self._num_unknown(session)
            is_long = num_new > MAX_INDEXED
            is_full = has_long if is_long else num_indexed + num_new > MAX_INDEXED
            if is_full:
                continue
            if is_long:
                has_long = True
            else:
                num_indexed += num_new
            drafted = self._draft(session, max(probabilities.FLOOR, least_probability))
            self._num_made += 1
            self._looked_up[session.session_id] = self._num_made
            if drafted.tokens:
                self._misses.discard(session.session_id)
                found.append((session, drafted))
            else:
                self._misses.add(session.session_id)
        return found

    def keep(self, open_sessions: Container[bytes]) -> None:
        """Drops the texts of all other sessions."""
        for session_id in [key for key in self._texts if key not in open_sessions]:
            self._num_tokens -= len(self._texts.pop(session_id))
        self._looked_up = {key: made for key, made in self._looked_up.items() if key in open_sessions}
        self._misses &= self._looked_up.keys()

    def _first(self, wanting: Sequence[Wanting]) -> Sequence[Wanting]:
        """Returns the sessions to look up: the highest worth first, equal worth in turn.

        Sessions whose latest lookup found nothing share a few lookups in turn.
        """
        worth_it = [one for one in wanting if one.least_probability < 1.0]
        if len(worth_it) <= MAX_DRAFTS:
            return worth_it
        missed = [one for one in worth_it if one.session.session_id in self._misses]
        fresh = [one for one in worth_it if one.session.session_id not in self._misses]
        again = max(min(MISSED_LOOKUPS, len(missed)), MAX_DRAFTS - len(fresh))
        return [
            *nsmallest(MAX_DRAFTS - again, fresh, key=lambda one: (-one.worth, self._turn(one))),
            *nsmallest(again, missed, key=self._turn),
        ]

    def _turn(self, wanting: Wanting) -> int:
        """Returns the number of the session's latest lookup; 0: it had none."""
        return self._looked_up.get(wanting.session.session_id, 0)

    def _draft(self, session: Session, least_probability: float) -> DraftTokens:
        """Drafts up to the text's end, which the target draws in the same round, drafted or not."""
        if forced := session.drafts.forced[: session.max_length]:
            tokens = tuple(takewhile(lambda token: token not in session.opened.stop_ids, forced))
            return DraftTokens(tokens, bytes(len(tokens)), FORCED)
        found = self.find(session, min(MAX_LENGTH, session.max_length), least_probability)
        return DraftTokens(found.tokens, probabilities.encode(found.probabilities), SELF)

    def find(self, session: Session, length: int, least_probability: float) -> Continuation:
        """Returns what the index of the session's text proposes, at most `length` tokens; simulations replay it."""
        opened = session.opened
        return draft(
            self._text(session),
            (),
            length,
            sampling=opened.sampling,
            least_probability=least_probability,
            banned=banned_at(opened, len(session.tokens)),
            stop_ids=opened.stop_ids,
        )

    def _num_unknown(self, session: Session) -> int:
        known = self._texts.get(session.session_id)
        return len(session.tokens) - (len(known) if known is not None else 0)

    def _text(self, session: Session) -> GrowingText:
        """Returns the index of the session's current text."""
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
