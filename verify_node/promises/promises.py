"""The book of promises in step with the sessions: whom it decides on, whom it asks for again, what a round owes."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from goodspeed.admission import Pace
from goodspeed.admission.headroom import FLOOR, promised
from goodspeed.admission.remote import Guarantee
from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.latency import Refined
from goodspeed.fleet.virtual import Wish
from verify_node.admission import Allotment, Book, Request, Tier, allot, decide
from verify_node.promises.capacity import Capacity
from verify_node.promises.counted import counted_on
from verify_node.promises.floor import Floor
from verify_node.promises.requests import may_begin, requests_of, wish_of
from verify_node.promises.shares import promise_fairly
from verify_node.scheduler.round import Round, RoundLimits
from verify_node.session.session import Session
from verify_node.slo.ledger import Ledger

GONE_S = 5.0
"""A promise ends when only its draft node could move the text for so long; most lines are back before."""

AGAIN = 8
"""Declined texts that are asked for again in one decision, so that it stays short: of each client one, in turn."""

AT_ONCE = 64
"""New texts in one decision; what further ones get is decided in the next, after a round if one is ready."""


class Decided(NamedTuple):
    """What was decided of a session."""

    session: Session
    promised: bool


class Promises:
    """The book of promises, kept in step with the sessions."""

    def __init__(
        self, policy: str, cost: Refined, limits: RoundLimits, pool: PagePool, guarantee: Guarantee = "plain"
    ) -> None:
        """policy: of `goodspeed.admission.names()`; with `none` nothing is ever promised, nor decided."""
        self.policy = policy
        self.guarantee = guarantee
        self.book = Book()
        self._floor = Floor()
        self._cost = cost
        self._limits = limits
        self._pool = pool
        self._asking: dict[bytes, Session] = {}
        self._declined: dict[bytes, Session] = {}  # of these, those whose first token is not there yet

    @property
    def is_on(self) -> bool:
        """Whether anything is promised."""
        return self.policy != "none"

    @property
    def is_asked(self) -> bool:
        """Whether anybody waits to be decided on."""
        return bool(self._asking)

    @property
    def may_change(self) -> bool:
        """Whether a promise could lapse, or one who was declined be promised something now."""
        return bool(len(self.book) or self._declined)

    def opened(self, session: Session, before: Session | None) -> None:
        """A session was opened (again): if it has objectives, the next `decide` says what becomes of them.

        before: what was open by its id until now, maybe the session itself. Its promise is kept if it is the same text,
        and asks for no more.
        """
        if before is not session:
            if before is not None and _goes_on(before, session):
                self.book.reopened(session.session_id, len(session.opened.committed))
            else:
                self.book.forget(session.session_id)
        if self.is_on and session.ledger is not None:
            self._asking[session.session_id] = session

    def decide(self, sessions: Mapping[bytes, Session], now: float) -> list[Decided]:
        """Decides on those who asked, until they are `answered`. now: when the next round can begin.

        One whose opening only came twice gets the same answer. Those that were declined are asked for again until their
        first token is there or was due, since others may come to their end; they are named if they are promised now.
        """
        asking = self._open_asking(sessions)[:AT_ONCE]
        told = {session.session_id for session in asking}
        again = [session for session in self._again(sessions, now) if session.session_id not in told]
        new = [session for session in asking if session.promised is None]
        if new or again:
            self._keep_in_step(sessions)
            self._decide([(one, one.ledger) for one in (*new, *again) if one.ledger is not None], sessions, now)
        self._declined |= {
            one.session_id: one for one in new if one.session_id not in self.book and may_begin(one, now)
        }
        decided = [Decided(session, session.session_id in self.book) for session in asking]
        return decided + [Decided(session, True) for session in again if session.session_id in self.book]

    def answered(self, session: Session) -> None:
        """What was decided of a session is carried out."""
        if self._asking.get(session.session_id) is session:
            del self._asking[session.session_id]

    def withdraw(self, sessions: Mapping[bytes, Session]) -> tuple[list[Session], list[Session]]:
        """Forgets all promises and questions; returns whose promises these were, and who else had asked."""
        lost = [sessions[one.session_id] for one in self.book if one.session_id in sessions]
        asking = [session for session in self._open_asking(sessions) if session.session_id not in self.book]
        self.book, self._floor = Book(), Floor()
        self._asking.clear()
        self._declined.clear()
        return lost, asking

    def _open_asking(self, sessions: Mapping[bytes, Session]) -> list[Session]:
        """Who asked and is still there; the others are forgotten."""
        self._asking = {
            key: session
            for key, session in self._asking.items()
            if sessions.get(key) is session and not session.finished
        }
        return list(self._asking.values())

    def _again(self, sessions: Mapping[bytes, Session], now: float) -> list[Session]:
        """Returns which of the declined are asked for again, and forgets those whose time is over."""
        for session_id, session in list(self._declined.items()):
            is_open = sessions.get(session_id) is session and not session.finished
            if not is_open or session_id in self.book or not may_begin(session, now):
                del self._declined[session_id]
        asked: dict[str, Session] = {}
        for session in self._declined.values():  # those first that were asked for longest ago
            if len(asked) < AGAIN:
                asked.setdefault(session.client.name, session)
        for session in asked.values():
            self._declined[session.session_id] = self._declined.pop(session.session_id)
        return list(asked.values())

    def _decide(self, asking: Sequence[tuple[Session, Ledger]], sessions: Mapping[bytes, Session], now: float) -> None:
        told = {session.session_id for session, _ in asking}
        others = [sessions[one.session_id] for one in self.book if one.session_id not in told]
        num_promised = Counter(session.client.name for session in others)
        requests = requests_of(asking, num_promised, self._pool, now)
        new = [request for request in requests if request.session_id not in self.book]
        everybody = [*others, *(session for session, _ in asking)]
        rounds = self._rounds(everybody)
        counted = self._counted_on(everybody, rounds)

        def decide_on(book: Book, requests: Sequence[Request], share: float) -> list[Tier]:
            return decide(
                book,
                requests,
                now,
                tokens_in=promised(rounds.tokens_in, share),
                least_round_s=rounds.least_s,
                counted_on=counted,
                pool_pages=int(share * (1.0 - FLOOR) * self._pool.num_pages),
                policy=self.policy,
            )

        clients = {session.session_id: session.client for session in everybody}
        waiting = {one.client.name for one in self._declined.values() if one.session_id not in told}
        promise_fairly(self.book, new, clients, waiting, decide_on)

    def allot(self, sessions: Mapping[bytes, Session], ready: Iterable[Session], now: float) -> Allotment | None:
        """What the round that begins now is to keep to; None where nothing is promised. ready: whom it can move."""
        self._keep_in_step(sessions)
        if not len(self.book):
            return None
        ready = list(ready)
        self._look_who_is_there({session.session_id for session in ready}, now)
        self._floor.keep({session.client.name for session in sessions.values()})
        own = [sessions[one.session_id] for one in self.book]
        rounds = self._rounds(own)
        waiting = sorted(ready, key=lambda session: (session.ready_since, session.admitted))  # as a round is packed
        waiting = [session for session in waiting if session.session_id not in self.book]
        lengths = [len(session.tokens) for session in waiting]
        return allot(
            self.book,
            now,
            tokens_in=rounds.tokens_in,
            least_round_s=rounds.least_s,
            promised_in=promised(rounds.tokens_in),
            counted_on=self._counted_on(own, rounds),
            beside=lambda seconds, num_tokens: rounds.beside(seconds, num_tokens, lengths),
            floor=partial(self._floor.owed, waiting, self._pool),
        )

    def began(self, planned: Round, ready: Sequence[Session]) -> None:
        """A round begins that not all who were ready are in: those who wait for long are to be in the next ones."""
        if len(self.book):
            self._floor.began(planned, ready, self.book)

    def finished(self, sessions: Mapping[bytes, Session], can_move: Callable[[Session], bool], now: float) -> None:
        """A round is done: the time of those stands still whom no round can move."""
        if len(self.book):
            self._look_who_is_there({key for key, session in sessions.items() if can_move(session)}, now)

    def wish(self, session: Session, now: float) -> Wish:
        """What the session would ask of another verify node, which has nothing of its text."""
        return wish_of(session, self._pool.page_size, now)

    def lapse(self, sessions: Mapping[bytes, Session], now: float) -> list[Session]:
        """Ends promises to those who have been absent for too long: what is reserved for them is of use to others."""
        gone = [one.session_id for one in self.book if one.absent_since is not None and now - one.absent_since > GONE_S]
        for session_id in gone:
            self.book.forget(session_id)
        return [sessions[session_id] for session_id in gone if session_id in sessions]

    def _look_who_is_there(self, can_move: Container[bytes], now: float) -> None:
        for promise in self.book:
            change = self.book.present if promise.session_id in can_move else self.book.absent
            change(promise.session_id, now)

    def delivered(self, session: Session, num_tokens: int, now: float) -> None:
        """A round brought it so many tokens."""
        self.book.delivered(session.session_id, num_tokens, now)

    def _keep_in_step(self, sessions: Mapping[bytes, Session]) -> None:
        """Forgets sessions that are over, and looks up what is left to read: the pool alone knows what is cached."""
        for promise in list(self.book):
            session = sessions.get(promise.session_id)
            if session is None or session.finished:
                self.book.forget(promise.session_id)
                continue
            left = len(session.tokens) - self._pool.length(promise.session_id)
            self.book.read_again(promise.session_id, 0 if left == 1 and promise.num_delivered else left)

    def _counted_on(self, sessions: Iterable[Session], rounds: Capacity) -> dict[bytes, Pace]:
        return counted_on(sessions, rounds.tokens_in, self._limits.budget) if self.guarantee == "speculative" else {}

    def _rounds(self, sessions: Sequence[Session]) -> Capacity:
        """What rounds carry that have these sessions in them."""
        context = sum(len(session.tokens) for session in sessions)
        return Capacity(self._cost, self._limits.max_round_tokens, len(sessions), context)


def _goes_on(before: Session, session: Session) -> bool:
    """Whether a session opened again is the same text, at most as far, and asks for no more than before."""
    if session.ledger is None or before.ledger is None or session.opened.prompt != before.opened.prompt:
        return False
    asked, had = session.ledger.slo.tpot_s, before.ledger.slo.tpot_s
    asks_no_more = session.limit <= before.limit and (asked is None or (had is not None and asked >= had))
    return asks_no_more and session.tokens == before.tokens[: len(session.tokens)]
