"""The book of promises: what each promised session is owed, and by when. Knows nothing about how it is kept."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple


class Request(NamedTuple):
    """What a session asks to be promised. Times are this node's."""

    session_id: bytes
    deadline: float  # when its first token is due
    prompt_tokens: int  # that have to be read before
    tpot_s: float | None  # seconds per token after the deadline; None: it is promised no rate
    pages: int = 0  # of memory, in the worst case: its prompt and all that it may write
    value: float = 1.0  # of keeping the promise, as compared with others'; > 0


@dataclass(slots=True)
class Promise:
    """One promised session's account. Only the book writes it."""

    session_id: bytes
    deadline: float
    prompt_left: int  # tokens that are not read yet; with the last one its first token comes
    tpot_s: float | None
    pages: int  # reserved
    num_delivered: int = 0  # tokens that it has had
    first_at: float | None = None  # None: it has none
    absent_since: float | None = None  # since when only its draft node can move it; None: a round can

    @property
    def is_decoding(self) -> bool:
        """Whether every round may bring it a token: its prompt is read."""
        return not self.prompt_left

    @property
    def due(self) -> float:
        """When its next token is due: token k, k TPOTs after the first one came, or after its deadline if it was late.

        So its reader finds the TPOT kept, who counts from the first token on. The paper counts from the deadline, which
        asks for less; a last prompt token that is held makes both nearly the same.
        """
        if self.first_at is None:
            return self.deadline
        return inf if self.tpot_s is None else min(self.first_at, self.deadline) + self.num_delivered * self.tpot_s


class Book:
    """All promises that are open, by session."""

    def __init__(self) -> None:
        self._promises: dict[bytes, Promise] = {}

    def __iter__(self) -> Iterator[Promise]:
        return iter(self._promises.values())

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._promises

    def __getitem__(self, session_id: bytes) -> Promise:
        return self._promises[session_id]

    def __len__(self) -> int:
        return len(self._promises)

    @property
    def pages(self) -> int:
        """Pages that are reserved."""
        return sum(one.pages for one in self)

    def only(self, session_ids: Container[bytes]) -> "Book":
        """The same promises of these sessions alone."""
        found = Book()
        found._promises = {key: one for key, one in self._promises.items() if key in session_ids}
        return found

    def promise(self, request: Request) -> None:
        """The request is promised what it asks for."""
        self._promises[request.session_id] = Promise(*request[:5])

    def read(self, session_id: bytes, num_tokens: int) -> None:
        """A round read so many tokens of its prompt. Of a session that nothing is promised nothing is kept."""
        if (one := self._promises.get(session_id)) is not None:
            one.prompt_left = max(0, one.prompt_left - num_tokens)

    def delivered(self, session_id: bytes, num_tokens: int, now: float) -> None:
        """It got so many tokens now, the one that comes with its prompt's last among them."""
        if num_tokens and (one := self._promises.get(session_id)) is not None:
            one.num_delivered += num_tokens
            one.first_at = now if one.first_at is None else one.first_at

    def absent(self, session_id: bytes, now: float) -> None:
        """Only its draft node can move it, as it has not said what it has, or is to draft: its time stands still."""
        if (one := self._promises.get(session_id)) is not None and one.absent_since is None:
            one.absent_since = now

    def present(self, session_id: bytes, now: float) -> None:
        """A round can move it (again): it is owed nothing for the time in which none could."""
        if (one := self._promises.get(session_id)) is not None and one.absent_since is not None:
            away_s = now - one.absent_since
            one.absent_since = None
            one.deadline += away_s
            one.first_at = None if one.first_at is None else one.first_at + away_s

    def read_again(self, session_id: bytes, num_tokens: int) -> None:
        """So many tokens are left to be read, since some that were cached may be gone."""
        if (one := self._promises.get(session_id)) is not None:
            one.prompt_left = num_tokens

    def reopened(self, session_id: bytes, num_delivered: int) -> None:
        """Its draft node came back, with so many tokens of the text; the others are delivered again."""
        if (one := self._promises.get(session_id)) is not None:
            one.num_delivered = num_delivered

    def forget(self, session_id: bytes) -> None:
        """Its text is over, or it is promised nothing any more."""
        self._promises.pop(session_id, None)
