"""This replica's load, the sessions to redirect to another replica, and the messages that inform draft nodes of these.

A session is redirected at most MAX_HOPS times before a replica gives it a token. No I/O, no clock, no torch.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf, isfinite

from msgspec.structs import replace

from goodspeed.fair.refined import Refined
from goodspeed.fleet.replicas import MAX_OWED, MAX_PACES, Load, Owed, Pace, Replica
from goodspeed.fleet.routing import Reason, elsewhere, expected_s, may_take, with_one_more
from goodspeed.slo.capacity import FLOOR
from goodspeed.slo.feasible import Ask
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.handshake import Heartbeat, Sibling
from goodspeed.wire.messages import OpenSession, Redirect
from verify_node.clients.client import Peer
from verify_node.core.counts import Counts
from verify_node.core.register import Register
from verify_node.core.replies import Send
from verify_node.scheduler.round import RoundLimits
from verify_node.session.deadline import Deadline
from verify_node.session.session import Session
from verify_node.slo.allotting import tpots
from verify_node.slo.promises import Promises

TOLD_S = 10.0
"""Least time between two reports of load to draft nodes; replicas that join, leave or drain are reported at once."""

MOST_S = 1e6
"""Cap on reported times, in seconds, beyond any planning horizon."""


class Fleet:
    """The other replicas: informs draft nodes of them, and redirects sessions to them."""

    def __init__(self, register: Register, promises: Promises, counts: Counts, load: Callable[[float], Load]) -> None:
        """load: returns this replica's load at a given time."""
        self.news: tuple[Sibling, ...] | None = None  # the latest report to draft nodes; None: no fleet yet
        self._register, self._promises, self._counts = register, promises, counts
        self._load = load
        self._own: Replica | None = None
        self._others: dict[str, Replica] = {}  # by name
        self._told_at = 0.0

    @property
    def is_alone(self) -> bool:
        return not self._others

    def can_take_over(self, now: float) -> bool:
        """True if another replica may take this one's sessions when it stops."""
        target = self._register.welcome.target_fingerprint
        return any(may_take(one, now, target) for one in self._others.values())

    def know(self, own: str, replicas: Sequence[Replica], now: float) -> list[Send]:
        """Takes the table of all replicas, including this one, named `own`. Informs all draft nodes of changes.

        The times of the replicas' loads use the same clock as `now`.
        """
        self._own = next((one for one in replicas if one.name == own), None)
        self._others = {one.name: one for one in replicas if one.name != own} if self._own is not None else {}
        news = tuple(map(_sibling, replicas)) if self._own is not None else ()
        if self.news is None and not news:
            return []
        is_new = self.news is None or _members(news) != _members(self.news)
        if not is_new and (now - self._told_at < TOLD_S or news == self.news):
            return []
        self.news, self._told_at = news, now
        return [send for peer_id in self._register.peers for send in self.tell(peer_id)]

    def tell(self, peer_id: bytes) -> list[Send]:
        """Sends one draft node the latest report on the fleet; nothing if there is none."""
        if self.news is None:
            return []
        return [Send(peer_id, Heartbeat(self._register.welcome.boot_id, self.news))]

    def open_elsewhere(self, peer: Peer, message: OpenSession, now: float, *, draining: bool) -> list[Send]:
        """Redirects a session that is about to be opened, if another replica serves it better."""
        if self.is_alone or message.session_id in self._register.sessions:
            return []
        reason: Reason
        if draining or len(self._register.sessions) >= self._register.sessions.max_sessions:
            reason = "draining"
        elif message.committed or (message.slo is not None and self._promises.is_on):  # decided later
            return []
        else:
            reason = "load"
        request = self._request(len(message.prompt) + len(message.committed), len(message.prompt) + message.max_tokens)
        return self._redirect(peer.peer_id, message, request, message.hops, now, reason)

    def promise_elsewhere(self, session: Session, now: float) -> list[Send]:
        """Redirects a session that is declined here to a replica that would promise its objectives, and drops it."""
        request, opened = self._promises.request(session, now), session.opened
        if request is None:
            return []
        sends = self._redirect(session.peer_id, opened, request, opened.hops, now, "slo")
        if sends:
            self._register.sessions.drop(session)
        return sends

    def leave(self, now: float) -> list[Send]:
        """Redirects all open sessions because this replica stops; without another replica, sends nothing."""
        sends = []
        for session in self._register.sessions.values():
            hops = session.opened.hops if len(session.tokens) == session.num_given else 0
            request = self._request(len(session.tokens), session.limit)
            sends += self._redirect(session.peer_id, session.opened, request, hops, now, "draining")
        return sends

    def _request(self, num_tokens: int, limit: int) -> Ask:
        """Describes a text of num_tokens tokens that may grow to `limit`, without objectives."""
        return Ask(inf, num_tokens, None, -(-limit // self._register.pool.page_size))

    def _redirect(
        self, peer_id: bytes, opened: OpenSession, request: Ask, hops: int, now: float, reason: Reason
    ) -> list[Send]:
        """Sends nothing if no other replica is better, or the session has used up its redirects."""
        if self._own is None or self.is_alone or hops >= MAX_HOPS:
            return []
        own = replace(self._own, load=self._load(now)) if reason == "load" else self._own
        target = self._register.welcome.target_fingerprint
        found = elsewhere(own, list(self._others.values()), request, now, reason=reason, target=target)
        if found is None:
            return []
        if found.load is not None:  # else all sessions redirected before its next report would go there
            self._others[found.name] = replace(found, load=with_one_more(found.load, request, now))
        self._counts.redirects[reason] += 1
        redirect = Redirect(opened.session_id, opened.epoch, found.endpoint, found.public_key or "", hops + 1, reason)
        return [Send(peer_id, redirect)]


def _sibling(replica: Replica) -> Sibling:
    load, key = replica.load, replica.public_key or ""
    if load is None:
        return Sibling(replica.endpoint, key)
    seconds = expected_s(load)
    known_s = min(round(seconds, 4), MOST_S) if isfinite(seconds) else None
    return Sibling(replica.endpoint, key, load.target_fingerprint, load.is_draining, known_s)


def _members(news: Sequence[Sibling]) -> list[Sibling]:
    """Returns the news without loads: changes of all other fields are reported at once."""
    return [replace(sibling, expected_s=None) for sibling in news]


def load_of(
    register: Register,
    promises: Promises,
    cost: Refined,
    limits: RoundLimits,
    *,
    round_s: float,
    now: float,
    is_draining: bool,
) -> Load:
    """Sums up the open sessions and the promises.

    Reports the model of a round's time as a line through a few points around the current load.
    """
    pool, unfinished = register.pool, [session for session in register.sessions.values() if not session.finished]
    context = sum(len(session.tokens) for session in unfinished)
    paces, owed = summary(promises.promised.values(), now)
    busy_s = round_s + cost.work_s(len(unfinished))
    num_others = sum(len(session.tokens) for session in unfinished if session.session_id not in promises.promised)
    num_taken = max(pool.num_pages - pool.num_free, promises.num_pages + num_others // pool.page_size)
    return Load(
        told_at=now,
        boot_id=register.welcome.boot_id.hex(),
        target_fingerprint=register.welcome.target_fingerprint,
        is_draining=is_draining,
        num_sessions=len(unfinished),
        max_sessions=register.sessions.max_sessions,
        num_pages=pool.num_pages,
        free_pages=max(0, pool.num_pages - num_taken),
        promisable_pages=max(0, int((1.0 - FLOOR) * pool.num_pages) - promises.num_pages),
        context_tokens=context,
        round_s=busy_s if unfinished else 0.0,  # of a past load, which no round will correct
        max_round_tokens=limits.max_round_tokens,
        **_line(cost, len(unfinished), context, limits.budget),
        usual_error=cost.usual_error,
        promises=promises.is_on,
        paces=paces,
        owed=owed,
    )


def summary(promised: Collection[Deadline], now: float) -> tuple[tuple[Pace, ...], tuple[Owed, ...]]:
    """Returns the TPOTs of promised sessions in decode, and the promised prompts still to prefill, earliest due first.

    Counts as `decide` does: a prompt with at most one token to prefill is in decode, and a late session's TPOT includes
    catching up. Drops prompts beyond MAX_OWED, those due last. Beyond MAX_PACES TPOTs, slower ones count as the
    slowest reported one.
    """
    decoding = Counter(tpots((one for one in promised if one.prompt_left <= 1), now))
    told = sorted(decoding)
    for slower in told[MAX_PACES:]:
        decoding[told[MAX_PACES - 1]] += decoding[slower]
    waiting = sorted((one for one in promised if one.prompt_left > 1), key=lambda one: one.due)[:MAX_OWED]
    return tuple(Pace(tpot_s, decoding[tpot_s]) for tpot_s in told[:MAX_PACES]), tuple(_owed(waiting, now))


def _owed(waiting: Iterable[Deadline], now: float) -> Iterable[Owed]:
    for one in waiting:
        left_s = max(-MOST_S, min(one.due - now, MOST_S))
        yield Owed(left_s, one.prompt_left, one.slo.tpot_s, one.pages)


def _line(cost: Refined, num_sessions: int, context: int, budget: int) -> dict[str, float]:
    """Slopes of the round time around a round with one token per session, and the fixed remainder, in seconds.

    They include the node's own work, and the remainder a change of the pass's size.
    """
    number = max(1, num_sessions)
    round_s = cost.round_s(number, number, context)
    read = cost.context_tokens(context, number + budget, number)
    token_s = max(0.0, (cost.round_s(number + budget, number, read) - round_s) / budget)
    session_s = max(0.0, cost.round_s(number, number + 1, context) - round_s)
    context_s = max(0.0, (cost.round_s(number, number, context + 1024) - round_s) / 1024)
    fixed_s = max(0.0, round_s - token_s * number - session_s * number - context_s * context)
    fixed_s += cost.work_s(0) + cost.change_s(number, context)
    session_s += cost.work_s(1) - cost.work_s(0)
    return {"fixed_s": fixed_s, "token_s": token_s, "session_s": session_s, "context_s": context_s}
