"""Finished texts by user, and shared texts, for later sessions to draft from.

With `per_user` one user's text never drafts for another, who could tell from the time that a text takes what others
have been told.
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
"""Users with texts: each takes 4 KiB at least. The one who has been away longest is forgotten."""

MAX_SHARE = 4
"""A text counts with its last quarter of all tokens that are kept, so that one text leaves room for others."""

EVERYBODY = ""


class History:
    """Texts of at most max_tokens over all users together, and as many tokens of shared texts.

    Texts are dropped whole, the oldest first, of the user who has most tokens among those with two texts or more: so
    one user cannot push out others, however much they write. Only where everybody has one text, the user who has been
    away longest loses theirs to a new one.
    """

    def __init__(self, max_tokens: int, per_user: bool, *, tokenizer: str = "") -> None:
        """`tokenizer` is the fingerprint of the tokenizer whose ids these are; needed for a file only."""
        if max_tokens < 1:
            raise ConfigError(f"max_tokens {max_tokens} is too small; it must be at least 1")
        self.max_tokens = max_tokens
        self.per_user = per_user
        self.tokenizer = tokenizer
        self.num_tokens = 0  # of users
        self.num_added = 0  # texts of users, ever: whoever saves them sees by it that there is something new
        self._shared = NgramIndex(max_tokens)
        self._by_user: dict[str, NgramIndex] = {}  # who added last is last

    @property
    def num_bytes(self) -> int:
        return self._shared.num_bytes + sum(index.num_bytes for index in self._by_user.values())

    def add(self, user: str, tokens: Sequence[int]) -> None:
        """Adds a finished text, prompt included, in about 0.3 us a token; leaves out what is too short."""
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
        """Adds a text that drafts for everybody: of a folder of documents, never a user's."""
        self._shared.add(tokens)

    def indexes(self, user: str) -> list[NgramIndex]:
        """Returns what may draft for this user: their own texts, and the shared ones."""
        own = self._by_user.get(user if self.per_user else EVERYBODY)
        return ([own] if own is not None and own.num_tokens else []) + self.shared

    @property
    def shared(self) -> list[NgramIndex]:
        """Returns the part that drafts for everybody, without any user's text."""
        return [self._shared] if self._shared.num_tokens else []

    def save(self, path: str | Path) -> None:
        """Writes users' texts to a file of mode 0600, whole or not at all. Raises ConfigError where it cannot.

        It waits for the disk: from an event loop, call `contents`, and encode and write these in a thread.
        """
        history_file.write(path, history_file.encode(self.contents()))

    def contents(self) -> SavedHistory:
        """Returns a copy of what the file holds, in about 4 ms for a million tokens; shared texts are not in it."""
        users = [SavedUser(name, [history_file.pack(text) for text in i.texts()]) for name, i in self._by_user.items()]
        return SavedHistory(self.tokenizer, self.per_user, users)

    def load(self, path: str | Path) -> int:
        """Adds the texts of a file, none if there is no such file; returns how many are kept then.

        Raises ConfigError for a file that is damaged, of another tokenizer or version, or written with another
        `per_user`: texts that were kept for one user are not handed to all.
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
