"""Finished texts by user, and shared texts, for n-gram drafts of later sessions.

With `per_user` a user's text never drafts for other users, who could otherwise infer its content from timing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from goodspeed.errors import ConfigError
from goodspeed.ngram import history_file
from goodspeed.ngram.chains import MIN_ORDER
from goodspeed.ngram.history_file import SavedHistory, SavedUser
from goodspeed.ngram.index import NgramIndex

MAX_USERS = 1_000
"""Most users with texts; each takes at least 4 KiB. Beyond that the user who added no text for longest is dropped."""

MAX_SHARE = 4
"""A text's share of max_tokens is at most 1 / MAX_SHARE: only its end is stored, so that others have room."""

EVERYBODY = ""


class History:
    """Texts of at most max_tokens over all users, and at most as many tokens of shared texts.

    Texts are dropped whole. The victim is the oldest text of the user with the most tokens among users with two or more
    texts, so that no user can crowd out others. If every user has one text, the user with the oldest text loses it.
    """

    def __init__(self, max_tokens: int, per_user: bool, *, tokenizer: str = "") -> None:
        """tokenizer: fingerprint of the token ids' tokenizer; needed only for saving and loading."""
        if max_tokens < 1:
            raise ConfigError(f"max_tokens {max_tokens} is too small; it must be at least 1")
        self.max_tokens = max_tokens
        self.per_user = per_user
        self.tokenizer = tokenizer
        self.num_tokens = 0  # of users' texts, shared ones excluded
        self.num_added = 0  # users' texts added since the start; shows whether there is anything new to save
        self._shared = NgramIndex(max_tokens)
        self._by_user: dict[str, NgramIndex] = {}  # in order of each user's latest addition

    def add(self, user: str, tokens: Sequence[int]) -> None:
        """Adds an ended text with its prompt, in about 0.3 us per token; ignores one of at most MIN_ORDER tokens."""
        tokens = tokens[-max(self.max_tokens // MAX_SHARE, 1) :]
        if len(tokens) <= MIN_ORDER:
            return
        self.num_added += 1
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

    def add_shared(self, tokens: Sequence[int]) -> None:
        """Adds a text that drafts for all users: from a folder of documents, never a user's."""
        self._shared.add(tokens)

    def indexes(self, user: str) -> list[NgramIndex]:
        """Returns the indexes that may draft for this user: of the user's own texts, and of shared ones."""
        own = self._by_user.get(user if self.per_user else EVERYBODY)
        return ([own] if own is not None and own.num_tokens else []) + self.shared

    @property
    def shared(self) -> list[NgramIndex]:
        """Returns the index that drafts for all users, if it has texts; it contains no user's text."""
        return [self._shared] if self._shared.num_tokens else []

    def contents(self) -> SavedHistory:
        """Returns a copy of the users' texts for `history_file.write`, without shared texts; 4 ms for a million tokens.

        Writing waits for the disk: do it on a thread, not in an event loop.
        """
        users = [SavedUser(name, [history_file.pack(text) for text in i.texts()]) for name, i in self._by_user.items()]
        return SavedHistory(self.tokenizer, self.per_user, users)

    def load(self, path: str | Path) -> int:
        """Adds the texts of a file, if it exists; returns the number of users' texts in the history afterwards.

        Raises ConfigError for a file that is damaged, of another tokenizer or version, or written with another
        `per_user`: texts stored for one user must not reach others.
        """
        saved = history_file.read(path, self.max_tokens)
        if saved is None:
            return 0
        history_file.check(saved, path, self.tokenizer, self.per_user)
        for user, text in _texts(saved):
            self.add(user, text)
        return sum(index.num_texts for index in self._by_user.values())

    def _drop_one(self) -> None:
        several = [index for index in self._by_user.values() if index.num_texts > 1]
        if several:
            self.num_tokens -= max(several, key=lambda index: index.num_tokens).drop_oldest()
        else:
            self._forget(next(iter(self._by_user)))

    def _forget(self, user: str) -> None:
        self.num_tokens -= self._by_user.pop(user).num_tokens


def _texts(saved: SavedHistory) -> Iterator[tuple[str, array[int]]]:
    for user in saved.users:
        for packed in user.texts:
            yield user.name, history_file.unpack(packed)
