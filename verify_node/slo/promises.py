"""All promises of a verify node: which deadlines are decided, which are reconsidered, and what the next round owes."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import ceil, inf
from typing import NamedTuple

from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.refined import Refined
from goodspeed.slo.admit import admit
from goodspeed.slo.capacity import FLOOR, Capacity, headroom_s
from goodspeed.slo.feasible import Ask
from verify_node.session.deadline import Deadline
from verify_node.session.session import Session
from verify_node.slo.allotting import NO_PROMISES, Allotment, allot, shortest_s, tpots

GONE_S = 5.0
"""Seconds after which a promise lapses if only the draft node could move the text; most connections return sooner."""

AGAIN = 8
"""Declined texts that one decision reconsiders, so that it stays short: one per client, in turn."""

AT_ONCE = 64
"""New texts in one decision; further ones wait for the next, after a round of the others if one is ready."""

MOST_SHORT = 2.0
"""Largest shortfall carried over, in tokens, in addition to those due in one round. A client that gets no pages, or
takes fewer tokens than it is due, accumulates no more."""


class Promises:
    """The admitted deadlines, kept in step with the sessions."""

    def __init__(self, policy: str, cost: Refined, max_round_tokens: int, pool: PagePool) -> None:
        """policy: one of `goodspeed.slo.admit.ADMISSION`; with `none`, nothing is promised or decided."""
        self.policy = policy
        self.promised: dict[bytes, Deadline] = {}  # by session
        self._floor = Floor()
        self._cost = cost
        self._max_round_tokens = max_round_tokens
        self._pool = pool
        self._undecided: dict[bytes, Deadline] = {}
        self._declined: dict[bytes, Deadline] = {}  # without a first token yet; the oldest decision first

    @property
    def is_on(self) -> bool:
        return self.policy != "none"

    @property
    def has_undecided(self) -> bool:
        return bool(self._undecided)

    @property
    def may_change(self) -> bool:
        """True if a promise could lapse, or a declined deadline be admitted now."""
        return bool(self.promised or self._declined)

    @property
    def num_pages(self) -> int:
        """Reserved KV pages."""
        return sum(one.pages for one in self.promised.values())

    # -- decisions, between two rounds -----------------------------------------------------------------------------

    def opened(self, session: Session, before: Session | None) -> None:
        """Registers a session that was opened or reopened; the next `decide` decides its deadline, if any.

        before: the session previously open by its id, maybe the same object. Its promise continues if its text was not
        finished, and the session keeps its place and requests no more.
        """
        key, deadline = session.session_id, session.deadline
        old = self.promised.pop(key, None) if before is not session else None
        if old is not None and deadline is not None and before is not None and _goes_on(before, session):
            deadline.continue_promise(old)
            deadline.reserve(self._pages(session))
            self.promised[key] = deadline
        if self.is_on and deadline is not None:
            self._undecided[key] = deadline

    def forget(self, session: Session) -> None:
        """Ends the promise of the session that was open by this id before."""
        self.promised.pop(session.session_id, None)

    def awaits_decision(self, session: Session) -> bool:
        """True if a session's deadline is undecided; no round may move it before, as decisions are about first tokens.

        A promise that continues needs no decision.
        """
        key, deadline = session.session_id, session.deadline
        is_new = session.promised is None and key not in self.promised
        return is_new and deadline is not None and self._undecided.get(key) is deadline

    def decide(self, sessions: Mapping[bytes, Session], now: float) -> dict[bytes, bool]:
        """Decides which waiting sessions are promised their deadlines; repeats each answer until `answered`.

        now: when the next round can begin. A session whose opening merely arrived twice gets the same answer. Declined
        deadlines are reconsidered until their first token is there or was due, since other sessions may end; the result
        includes a reconsidered deadline only if it is promised now.
        """
        self._undecided = _still_open(self._undecided, sessions)
        waiting = {key: one for key, one in self._undecided.items() if self.awaits_decision(sessions[key])}
        new = dict(islice(waiting.items(), AT_ONCE))
        told = {key: one for key, one in self._undecided.items() if key in new or key not in waiting}
        again = {key: one for key, one in self._again(sessions, now).items() if key not in told}
        if told or again:
            self._keep_in_step(sessions)
            self._decide(new | again, sessions, now)
        self._declined |= {key: one for key, one in new.items() if key not in self.promised and one.may_begin(now)}
        return {key: key in self.promised for key in told} | {key: True for key in again if key in self.promised}

    def answered(self, deadline: Deadline | None) -> None:
        """Marks the decision on a deadline as carried out."""
        if deadline is not None and self._undecided.get(deadline.session_id) is deadline:
            del self._undecided[deadline.session_id]

    def withdraw(self, sessions: Mapping[bytes, Session]) -> tuple[list[bytes], list[bytes]]:
        """Drops all deadlines; returns the sessions with a promise, and the others that waited for a decision."""
        lost = [key for key in self.promised if key in sessions]
        undecided = [key for key in _still_open(self._undecided, sessions) if key not in self.promised]
        self.promised, self._undecided, self._declined, self._floor = {}, {}, {}, Floor()
        return lost, undecided

    def lapse(self, sessions: Mapping[bytes, Session], now: float) -> list[bytes]:
        """Frees what promises reserve for sessions that are over or were paused for too long; returns the latter."""
        self.promised = _still_open(self.promised, sessions)
        promised = self.promised.items()
        gone = [key for key, one in promised if one.paused_since is not None and now - one.paused_since > GONE_S]
        for key in gone:
            del self.promised[key]
        return gone

    def request(self, session: Session, now: float) -> Ask | None:
        """Returns the session's request to a verify node that has none of its text cached; None without a deadline."""
        deadline = session.deadline
        if deadline is None:
            return None
        return Ask(deadline.due - now, len(session.tokens), deadline.slo.tpot_s, self._pages(session))

    def _again(self, sessions: Mapping[bytes, Session], now: float) -> dict[bytes, Deadline]:
        """Returns the declined deadlines to reconsider, and drops those that can no longer be in time."""
        left = _still_open(self._declined, sessions)
        left = {key: one for key, one in left.items() if key not in self.promised and one.may_begin(now)}
        chosen: dict[str, Deadline] = {}  # by client
        for one in left.values():
            if len(chosen) < AGAIN:
                chosen.setdefault(one.client, one)
        again = {one.session_id: one for one in chosen.values()}
        self._declined = {key: one for key, one in left.items() if key not in again} | again
        return again

    def _decide(self, new: Mapping[bytes, Deadline], sessions: Mapping[bytes, Session], now: float) -> None:
        for key, one in new.items():
            one.reserve(self._pages(sessions[key]))
            self._set_prompt(one, sessions[key], self._pool.length(key))
        everybody = [sessions[key] for key in (*self.promised, *new)]
        waiting = {one.client for key, one in self._declined.items() if key not in new}
        weights = {session.client.name: session.client.weight for session in everybody}
        decision = Decision(now, self._rounds(everybody, len(sessions)), self._pool.num_pages, weights, self.policy)
        admit_fairly(self.promised, list(new.values()), waiting, decision)

    # -- rounds ----------------------------------------------------------------------------------------------------

    def allot(self, sessions: Mapping[bytes, Session], ready: Iterable[Session], now: float) -> Allotment:
        """Bounds of the round that begins now. ready: sessions that the round can move."""
        self._keep_in_step(sessions, now=True)
        if not self.promised:
            return NO_PROMISES
        ready = list(ready)
        self._pause_or_resume({session.session_id for session in ready}, now)
        # Tokens kept free for a session that found no pages would be lost to those that have some.
        others = (one for one in ready if one.session_id not in self.promised and not one.lacks_pages)
        waiting = sorted(others, key=lambda session: (session.ready_since, session.admitted))  # as in packing
        self._floor.keep({session.client.name for session in sessions.values()})
        return allot(
            self.promised,
            now,
            self._rounds([sessions[key] for key in self.promised], len(sessions)),
            [len(session.tokens) for session in waiting],
            partial(self._floor.owed, waiting, self._pool),
        )

    def began(self, taken: Mapping[bytes, int], ready: Sequence[Session]) -> None:
        """Records a beginning round's tokens by session. The next rounds owe the ready sessions that are not in it."""
        if self.promised:
            self._floor.began(taken, ready, self.promised)

    def finished(self, sessions: Mapping[bytes, Session], round_s: float, now: float) -> None:
        """Pauses deadlines after a round: those of sessions that no round can move."""
        if self.promised:
            self._pause_or_resume({key for key, session in sessions.items() if session.can_move(round_s)}, now)

    def _pause_or_resume(self, can_move: Container[bytes], now: float) -> None:
        for key, one in self.promised.items():
            if key in can_move:
                one.resume(now)
            else:
                one.pause(now)

    def _keep_in_step(self, sessions: Mapping[bytes, Session], *, now: bool = False) -> None:
        """Drops sessions that are over, and updates the tokens to prefill: only the pool knows what is cached.

        now: for a round that begins. A session without pages then begins with those that the prefix cache has; before
        that, they may be evicted.
        """
        self.promised = _still_open(self.promised, sessions)
        length = self._pool.length
        for key, one in self.promised.items():
            session, cached = sessions[key], length(key)
            if now and not cached and one.paused_since is None:
                cached = self._pool.find(key, session.prefix_scope, session.tokens).num_tokens
            self._set_prompt(one, session, cached)

    def _set_prompt(self, deadline: Deadline, session: Session, num_cached: int) -> None:
        num_left = len(session.tokens) - num_cached
        rows = (self._cost.prompt_rows(num_cached, number) for number in (num_left, 1))
        deadline.set_prompt(num_left, *rows)

    def _pages(self, session: Session) -> int:
        return -(-session.limit // self._pool.page_size)

    def _rounds(self, sessions: Sequence[Session], num_open: int) -> Capacity:
        """Capacity of rounds with these sessions, of so many that are open."""
        context, cost = sum(len(session.tokens) for session in sessions), self._cost
        extra_s = cost.work_s(num_open) + cost.change_s(len(sessions), context)
        return Capacity(cost, cost.usual_error, self._max_round_tokens, len(sessions), context, extra_s)


def _still_open(deadlines: Mapping[bytes, Deadline], sessions: Mapping[bytes, Session]) -> dict[bytes, Deadline]:
    """Returns the deadlines of sessions that are neither over nor reopened."""
    return {
        key: one
        for key, one in deadlines.items()
        if (session := sessions.get(key)) is not None and session.deadline is one and not session.finished
    }


def _goes_on(before: Session, session: Session) -> bool:
    """Returns whether a reopened session continues an unfinished text, no longer than before, and requests no more."""
    old, new = before.deadline, session.deadline
    if old is None or new is None or before.finished or not session.goes_on(before):
        return False
    same_window = new.slo.tpot_s is None or new.slo.tpot_window in (0, old.slo.tpot_window)
    same_pace = same_window and _is_no_tighter(new.slo.tpot_s, old.slo.tpot_s)
    return session.limit <= before.limit and same_pace and _is_no_tighter(new.slo.ttft_s, old.slo.ttft_s)


def _is_no_tighter(new_s: float | None, old_s: float | None) -> bool:
    return new_s is None or (old_s is not None and new_s >= old_s)


# -- decisions ---------------------------------------------------------------------------------------------------------


class Decision(NamedTuple):
    """The inputs of a decision, in addition to the deadlines."""

    now: float  # when the next round can begin
    rounds: Capacity  # of all sessions that are promised or to be decided
    num_pages: int  # of the KV cache, free or not
    weights: Mapping[str, float]  # of these sessions' clients, by name
    policy: str = "dp"  # of `goodspeed.slo.admit.ADMISSION`


def decide(promised: Mapping[bytes, Deadline], new: Sequence[Deadline], by: Decision, share: float = 1.0) -> list[bool]:
    """Decides which new deadlines to promise in addition to the promised ones; returns one flag per new deadline.

    share: part of the node's rounds and pages that may be used, above 0 and at most 1. A client's n-th promise is worth
    its weight / n: the marginal utility of a logarithm, so that promises are spread over clients.
    """
    shortest = shortest_s(promised.values(), by.rounds.least_s)  # without new TPOTs: these may be declined
    waiting = [one for one in promised.values() if one.prompt_left > 1]  # the others lack at most a held final token
    asks = [one.request(by.now, headroom_s(shortest)) for one in waiting]
    num_promised = Counter(one.client for one in promised.values())
    for one in new:
        num_promised[one.client] += 1
        value = by.weights[one.client] / num_promised[one.client]
        early_s = headroom_s(shortest, inf if one.slo.tpot_s is None else one.slo.tpot_s)
        asks.append(Ask(one.due - by.now - early_s, ceil(one.rows_left), one.slo.tpot_s, one.pages, value))
    reserved = sum(one.pages for one in promised.values())
    kept = admit(
        asks,
        decoding=tpots((one for one in promised.values() if one.prompt_left <= 1), by.now),
        tokens_in=lambda seconds: by.rounds.promised_in(seconds, share),
        pages=max(0, int(share * (1.0 - FLOOR) * by.num_pages) - reserved),
        policy=by.policy,
    )
    return kept[len(waiting) :]


def admit_fairly(
    promised: dict[bytes, Deadline], new: Sequence[Deadline], waiting: Collection[str], by: Decision
) -> None:
    """Decides which new deadlines to promise, and adds these to `promised`, by session id.

    First those within their client's share by weight. The rest goes to any client that requests it, beyond its share
    too. But while another client has an unmet request within its share, no client is promised more than its own share.
    waiting: names of clients with further deadlines, which are decided later.
    """
    within = _within_shares(promised, new, by)
    first = [one for one in new if one.session_id in within]
    _admit(promised, first, by)
    entitled = {one.client for one in first}
    unmet = {one.client for one in first if one.session_id not in promised} | entitled.intersection(waiting)
    rest = [one for one in new if one.session_id not in within and not unmet - {one.client}]
    _admit(promised, rest, by)


def _admit(promised: dict[bytes, Deadline], new: Sequence[Deadline], by: Decision) -> None:
    if new:
        kept = decide(promised, new, by)
        promised |= {one.session_id: one for one, is_kept in zip(new, kept, strict=True) if is_kept}


def _within_shares(promised: Mapping[bytes, Deadline], new: Sequence[Deadline], by: Decision) -> set[bytes]:
    """Returns the session ids of the deadlines that their client's own share of the node can meet beside its promises.

    Empty if a single client requests deadlines, as there is no one to share with.
    """
    clients = {one.client for one in new}
    if len(clients) < 2:
        return set()
    found: set[bytes] = set()
    by_client: dict[str, dict[bytes, Deadline]] = {name: {} for name in clients}
    for key, one in promised.items():
        if one.client in by_client:
            by_client[one.client][key] = one
    for name, held in by_client.items():
        own = [one for one in new if one.client == name]
        kept = decide(held, own, by, by.weights[name] / sum(by.weights.values()))
        found |= {one.session_id for one, is_kept in zip(own, kept, strict=True) if is_kept}
    return found


# -- best effort -------------------------------------------------------------------------------------------------------


class Floor:
    """The floor of best effort: tokens of each round that promises leave to waiting clients.

    A client with waiting best-effort sessions is due FLOOR of its weight's share of the tokens of every round, with its
    promised sessions' tokens counted in. Due tokens that a round did not give are the client's shortfall, which the
    next rounds must give.
    """

    def __init__(self) -> None:
        self._short: dict[str, float] = {}
        self._part = FLOOR  # share of a round's tokens due to all clients that waited in the previous one

    def owed(self, waiting: Sequence[Session], pool: PagePool, room: float) -> dict[bytes, int]:
        """Returns the tokens that the next round owes each session; the client with the largest shortfall goes first.

        waiting: ready best-effort sessions; a client's first ones go first. room: tokens of that round. The total is
        limited to the due share of that round: promises lose no more after long rounds, or where many clients fall
        short at once.
        """
        short, left = dict(self._short), ceil(self._part * room) if room < inf else inf
        owed: dict[bytes, int] = {}
        for session in sorted(waiting, key=lambda one: -self._short.get(one.client.name, 0.0)):
            name = session.client.name
            unread = len(session.tokens) - pool.length(session.session_id)
            if num_tokens := int(min(unread, left, short.get(name, 0.0))):
                owed[session.session_id] = num_tokens
                short[name] -= num_tokens
                left -= num_tokens
        return owed

    def began(self, taken: Mapping[bytes, int], ready: Sequence[Session], promised: Container[bytes]) -> None:
        """Updates shortfalls as a round begins. taken: its tokens by session. ready: those that could be in it."""
        clients = {session.session_id: session.client for session in ready}
        weights = {client.name: client.weight for client in clients.values()}
        waiting = {client.name for session_id, client in clients.items() if session_id not in promised}
        each = FLOOR * sum(taken.values()) / sum(weights.values())
        given: Counter[str] = Counter()
        for session_id, num_tokens in taken.items():
            given[clients[session_id].name] += num_tokens
        self._part = FLOOR * sum(weights[name] for name in waiting) / sum(weights.values())
        for name in waiting:
            due = each * weights[name]
            self._short[name] = max(0.0, min(self._short.get(name, 0.0) + due - given[name], MOST_SHORT + due))

    def keep(self, clients: Container[str]) -> None:
        self._short = {name: short for name, short in self._short.items() if name in clients}
