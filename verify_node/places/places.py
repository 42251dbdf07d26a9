"""The sessions of a verify node as those who hold memory or wait for it. Knows nothing about how rounds are filled."""

from collections.abc import Container, Iterable, Mapping, Sequence

from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.latency import CostModel
from goodspeed.order import Job, Order
from verify_node.packing.round import Round
from verify_node.places.accounts import Accounts, num_only_read
from verify_node.places.seating import Seating, seat
from verify_node.rounds.outcomes import Moved
from verify_node.session.session import Session

NUM_GONE = 64
"""Accounts of closed sessions that may be there beside as many as are open, however few rounds there are."""


class Places:
    """Keeps the accounts, and asks the order where memory is short."""

    def __init__(self, order: Order, cost: CostModel, pool: PagePool) -> None:
        """cost: the model of a round's time, which tells what reading a text again costs."""
        self.accounts = Accounts()
        self._order = order
        self._cost = cost
        self._pool = pool

    def seat(
        self,
        resident: Iterable[Session],
        ready: Sequence[Session],
        needs: Mapping[bytes, int],
        kept: Container[bytes],
        *,
        now: float,
        others: Iterable[Session] = (),
    ) -> Seating:
        """Who gives up memory before the round, and who waits for it.

        resident: sessions with memory. needs: pages that each ready session needs beyond what it has. kept: promised
        sessions. others: that are ready, and which this round leaves out; they are ranked, since they wait, too. A page
        that several have counts for the oldest of them, and for none where a promised session has it.
        """
        resident = list(resident)
        holders = [session for session in resident if session.session_id not in kept]
        waiting = {session.session_id: session for session in (*ready, *others)}.values()
        waiters = [one for one in waiting if one.session_id not in self._pool and one.session_id not in kept]
        contending = sorted([*holders, *waiters], key=lambda session: session.admitted)
        keys = [session.session_id for session in contending if session.session_id in self._pool]
        promised = [session.session_id for session in resident if session.session_id in kept]
        return seat(
            self._order,
            [self._job(session) for session in contending],
            now,
            num_free=self._pool.num_free,
            owned=dict(zip(keys, self._pool.owned(keys, others=promised), strict=True)),
            needs={key: pages for key, pages in needs.items() if key not in kept},
            claims={session.session_id: self.accounts.of(session).claim for session in holders},
            num_promised=sum(pages for key, pages in needs.items() if key in kept),
        )

    def _job(self, session: Session) -> Job:
        recompute_s = float(self._cost.round_s(len(session.tokens), 1, 0))
        return self.accounts.job(session, has_place=session.session_id in self._pool, recompute_s=recompute_s)

    def opened(
        self, session: Session, before: Session | None, sessions: Mapping[bytes, Session], now: float, *, kept: bool
    ) -> None:
        """A session was opened (again). before: what was open by its id until now, maybe the session itself.

        sessions: that are open. kept: memory by its id is not to be freed.
        """
        if before is not None and before is not session:
            self.accounts.opened(session, before, now, keeps_memory=kept)
        if len(self.accounts) > 2 * len(sessions) + NUM_GONE:
            self.accounts.keep(sessions)

    def began(self, planned: Round, sessions: Mapping[bytes, Session], now: float) -> None:
        """A round was packed: sessions lost their memory, and others were given some."""
        for session_id in planned.preempted:
            self.accounts.of(sessions[session_id]).leave(now)
        for session_id in planned.admitted:
            self.accounts.of(sessions[session_id]).enter(now)

    def finished(
        self, done: Round, moved: Iterable[Moved], sessions: Mapping[bytes, Session], duration_s: float
    ) -> None:
        """A round is done. sessions: those that took part and are still open."""
        token_s = duration_s / max(1, done.num_tokens)
        decided = [duration_s - token_s * num_only_read(entry) for entry in done.entries if entry.samples]
        if decided:
            self.accounts.observe_round(sum(decided) / len(decided))
        for entry in done.entries:
            if (session := sessions.get(entry.session_id)) is not None:
                self.accounts.of(session).observe(entry, duration_s, token_s)
        for move in moved:
            if move.session.finished:
                self.accounts.end(move.session)
            else:
                self.accounts.of(move.session).observe_draft(move.outcome.num_accepted, move.num_verified)

    def keep(self, sessions: Mapping[bytes, Session], clients: Container[str]) -> None:
        """Forgets sessions and clients that are gone. sessions: that are open."""
        self.accounts.keep(sessions)
        self.accounts.keep_lengths(clients)
