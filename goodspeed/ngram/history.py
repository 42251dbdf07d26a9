"""Finished texts by user, for n-gram drafts of later sessions.

With `per_user` a user's text never drafts for other users, who could otherwise infer its content from timing.
"""

from __future__ import annotations

from collections.abc import Sequence

from goodspeed.errors import ConfigError
from goodspeed.ngram.chains import MIN_ORDER
from goodspeed.ngram.index import NgramIndex

MAX_USERS = 1_000
"""Most users with texts; each takes at least 4 KiB. Beyond that the user who added no text for longest is dropped."""

MAX_SHARE = 4
"""A text's share of max_tokens is at most 1 / MAX_SHARE: only its end is stored, so that others have room."""

EVERYBODY = ""


class History:
    """Texts of at most max_tokens over all users.

    Texts are dropped whole. The victim is the oldest text of the user with the most tokens among users with two or more
    texts, so that no user can crowd out others. If every user has one text, the user with the oldest text loses it.
    """

    def __init__(self, max_tokens: int, per_user: bool) -> None:
        if max_tokens < 1:
            raise ConfigError(f"max_tokens {max_tokens} is too small; it must be at least 1")
        self.max_tokens = max_tokens
        self.per_user = per_user
        self.num_tokens = 0
        self._by_user: dict[str, NgramIndex] = {}  # in order of each user's latest addition

    def add(self, user: str, tokens: Sequence[int]) -> None:
        """Adds an ended text with its prompt, in about 0.3 us per token; ignores one of at most MIN_ORDER tokens."""
        tokens = tokens[-max(self.max_tokens // MAX_SHARE, 1) :]
        if len(tokens) <= MIN_ORDER:
            return
        user = user if self.per_user else EVERYBODY
        if user not in self._by_user and len(self._by_user) == MAX_USERS:
            self._forget(next(iter(self._by_user)))
        index = self._by_user.pop(user, None) or NgramIndex(self.max_tokens)
        self._by_user[user] = index
        self.num_tokens -= index.num_tokens
        index.add(tokens)
        self.num_tokens += index.num_tokens
        while self.num_tokens > self.max_tokens:
            self._drop_one()

    def indexes(self, user: str) -> list[NgramIndex]:
        """Returns the indexes that may draft for this user: that of the user's own texts, if there is one."""
        own = self._by_user.get(user if self.per_user else EVERYBODY)
        return [own] if own is not None and own.num_tokens else []

    def _drop_one(self) -> None:
        several = [index for index in self._by_user.values() if index.num_texts > 1]
        if several:
            self.num_tokens -= max(several, key=lambda index: index.num_tokens).drop_oldest()
        else:
            self._forget(next(iter(self._by_user)))

    def _forget(self, user: str) -> None:
        self.num_tokens -= self._by_user.pop(user).num_tokens
