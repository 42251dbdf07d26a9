"""Drafts that the verify node makes from a session's own prompt and text, for sessions that it advances by itself.

No draft node and no round trip is needed for these, and nothing private: the text is here anyway. Histories and corpora
stay at the draft nodes. Knows nothing about which drafts are worth it, or about rounds.
"""

from collections import OrderedDict
from collections.abc import Container

from goodspeed.ngram.drafting import draft
from goodspeed.ngram.index import GrowingText
from verify_node.rounds.drafted import NOTHING, Drafted, of_self
from verify_node.session.session import Session

MAX_LENGTH = 8
"""Longest draft from a session's own text."""

MAX_TOKENS = 4_000_000
"""Tokens of the texts that are indexed at once, about 100 MB; the text that was drafted from longest ago goes first."""

LEAST_ODDS = 0.1
"""Path odds below which nothing is drafted, however cheap a token is."""


class SelfDrafts:
    """The indexes of the sessions' own texts."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._texts: OrderedDict[bytes, GrowingText] = OrderedDict()

    def draft(self, session: Session, least_odds: float) -> Drafted:
        """What the session's own text says of the tokens that follow it; nothing if their odds are below least_odds."""
        length = min(MAX_LENGTH, session.max_length)
        if length < 1:
            return NOTHING
        least = min(max(LEAST_ODDS, least_odds), 1.0)
        found = draft(self._text(session), (), length, sampling=session.opened.sampling, least_odds=least)
        return of_self(tuple(found.tokens), tuple(found.odds))

    def keep(self, open_sessions: Container[bytes]) -> None:
        """Forgets the texts of all other sessions."""
        for session_id in [key for key in self._texts if key not in open_sessions]:
            self._num_tokens -= len(self._texts.pop(session_id))

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
