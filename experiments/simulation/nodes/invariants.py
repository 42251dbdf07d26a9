"""Checks what must hold between any two events: in one session, in one client, and between the parts of a verify core.

`validate` raises BrokenInvariant for the first claim that does not hold, and changes nothing; `CheckedCore` calls it
after every event.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.paged.pages import PagePool
from verify_node.clients.client import Client
from verify_node.core.client_events import MAX_REFUSALS, MAX_VISITS
from verify_node.core.core import VerifyCore
from verify_node.core.rate_limit import MAX_SENDERS
from verify_node.core.register import Register
from verify_node.scheduler.round import Entry, Round
from verify_node.session.phase import BrokenInvariant, Phase
from verify_node.session.session import Session

Claim: TypeAlias = tuple[object, bool, str]
"""Subject of a claim, whether the claim holds, and the fault to report if it does not."""


def validate(core: VerifyCore) -> None:
    """Raises BrokenInvariant with the first fault and its place."""
    for about, holds, wrong in _claims(core):
        if not holds:
            if isinstance(about, Session):
                wrong += about.story.told(about.session_id)
                about = f"session {about.session_id.hex()} ({about.phase.value})"
            raise BrokenInvariant(f"{about}: {wrong}")


def _checked(event: Callable[..., Any]) -> Callable[..., Any]:
    def then_validate(core: VerifyCore, /, *args: Any, **options: Any) -> Any:
        result = event(core, *args, **options)
        validate(core)
        return result

    return then_validate


def _of_part(core: VerifyCore, event: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return event(*args, **options)


class CheckedCore(VerifyCore):
    """A core that validates itself after every event, for tests and simulations. Slow: it checks every page."""

    enrol, receive, reject = _checked(VerifyCore.enrol), _checked(VerifyCore.receive), _checked(VerifyCore.reject)
    compiled, fail, tick = _checked(VerifyCore.compiled), _checked(VerifyCore.fail), _checked(VerifyCore.tick)
    farewell, admit = _checked(VerifyCore.farewell), _checked(VerifyCore.admit)
    plan = _checked(VerifyCore.plan)

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        events = ((self.fleet, "know"), (self.admission, "withdraw"), (self.rounds, "finish"), (self.rounds, "abort"))
        for part, name in events:
            setattr(part, name, partial(_checked(_of_part), self, getattr(part, name)))


def _claims(core: VerifyCore) -> Iterator[Claim]:
    yield from _register(core.register)
    if core.sessions.constraints is not None:
        yield from _constraints(core.register, core.sessions.constraints)
    for session in core.sessions.values():
        yield from _phase(session)
        yield from _draft(session)
        yield from _text(session)
        yield from _acknowledged(session)
    for name, client in core.allocator.clients.items():
        yield from _client(name, client, core.rounds.num_rounds)
    if core.rounds.in_flight is not None:
        yield from _round(core.rounds.in_flight, core)
    else:
        yield from _pool(core.pool, core.register)
    yield from _promises(core)
    kept, remembered = len(core.client_events), core.rate_limiter.num_senders
    yield "client_events", kept <= 2 * (MAX_VISITS + MAX_REFUSALS), f"keeps {kept} entries"
    yield "rate limiter", remembered <= MAX_SENDERS, f"remembers {remembered} senders"


def _register(register: Register) -> Iterator[Claim]:
    """Peers, sessions and clients refer to each other consistently, within their limits."""
    clients, sessions, enrolled = register.allocator.clients, register.sessions, register.enrolled
    for peer_id, peer in register.peers.items():
        about = f"peer {peer_id!r}"
        yield about, peer.peer_id == peer_id, f"calls itself {peer.peer_id!r}"
        known = clients.get(peer.client.name) is peer.client
        yield about, known, "is of a client that the allocator does not know"
        is_enrolled = enrolled is None or (peer.principal is not None and peer.principal in enrolled)
        yield about, is_enrolled, "has a key that is not enrolled"
    for session_id, session in sessions.items():
        owner = register.peers.get(session.peer_id)
        yield session, session.session_id == session_id, f"is registered as {session_id.hex()}"
        known = clients.get(session.client.name) is session.client
        yield session, known, "is of a client that the allocator does not know"
        yield session, owner is not None, f"is of peer {session.peer_id!r}, which is not connected"
        is_own = owner is None or owner.client is session.client
        yield session, is_own, f"is of peer {session.peer_id!r}, which is another client's"
    yield "register", len(sessions) <= register.sessions.max_sessions, "too many sessions are open"
    for name, num in Counter(session.client.name for session in sessions.values()).items():
        yield "register", num <= register.sessions.max_client_sessions, f"{name!r} has {num} sessions open"
    yield "register", len({one.admitted for one in sessions.values()}) == len(sessions), "two are one age"


def _constraints(register: Register, constraints: Constraints) -> Iterator[Claim]:
    """Every constraint is held for an open session that it belongs to, or is about to be released."""
    having = {key: one for key, one in register.sessions.items() if one.opened.constraint is not None}
    for session_id, session in having.items():
        constraint = session.opened.constraint
        is_held = constraint is None or session.is_compiling or constraints.holds(session_id, constraint)
        yield session, is_held, "does not hold its constraint"
    for holder in constraints.holders:
        is_known = holder in having or holder in register.sessions.released
        yield f"session {holder.hex()}", is_known, "holds a constraint that nothing will release"


def _client(name: str, client: Client, num_rounds: int) -> Iterator[Claim]:
    """num_rounds: verify rounds started so far."""
    about, times = f"client {name!r}", (client.round_trip_s, client.answer_s)
    yield about, min(times) >= 0.0, f"one of the smoothed times {times} is negative"
    yield about, client.num_accepted <= client.num_drafted, "more drafted tokens were accepted than verified"
    observed = client.observed_round
    yield about, observed <= num_rounds, f"it was observed in round {observed}, which never began"
    yield about, client.name == name, f"is named {client.name!r}"


def _round(done: Round, core: VerifyCore) -> Iterator[Claim]:
    """The round in flight is within its limits, and its sessions have not changed since planning."""
    about, limits, taking_part = f"round {done.number}", core.limits, core.rounds.taking_part
    yield about, done.num_drafted <= limits.budget, f"drafts {done.num_drafted} tokens of {limits.budget}"
    most = limits.max_round_tokens
    yield about, done.num_tokens <= most, f"feeds {done.num_tokens} tokens of {most}"
    yield about, [entry.session_id for entry in done.entries] == [*taking_part], "has other entries than sessions"
    for entry in done.entries:
        session = taking_part[entry.session_id]
        if core.sessions.has(session):
            yield from _entry(entry, session)
        else:
            gone = entry.session_id in core.sessions.released
            yield session, gone, "left its round, but its memory will not be freed"


def _entry(entry: Entry, session: Session) -> Iterator[Claim]:
    num_tokens, base_len = len(session.tokens), entry.base_len
    yield session, session.is_active, "takes part in a round"
    yield session, entry.opened.epoch == session.epoch, f"takes part in a round in epoch {entry.opened.epoch}"
    if entry.samples:
        yield session, base_len == num_tokens, f"is verified from {base_len} on, but has {num_tokens} tokens"
    else:
        yield session, base_len < num_tokens, f"is fed up to {base_len}, but has {num_tokens} tokens"


def _pool(pool: PagePool, register: Register) -> Iterator[Claim]:
    """Every page belongs to an open session or is about to be freed.

    To be checked only while no round is in flight, because the target writes pages then. A page that several sessions
    share must be full in each, and its reference count must equal their number.
    """
    owners: Counter[int] = Counter()
    written: set[int] = set()  # pages that are not full
    for key in pool:
        pages, length = pool.table(key).tolist(), pool.length(key)
        owners.update(pages)
        written.update(pages[length // pool.page_size :])
        if key not in register.sessions.released:
            session = register.sessions.get(key) if isinstance(key, bytes) else None
            name = key.hex() if isinstance(key, bytes) else repr(key)
            yield f"session {name}", session is not None, "is not open, but has memory that will not be freed"
            if session is not None:
                yield from _memory(length, session)
    for page, number in owners.items():
        if number > 1 or pool.references(page) > 1:
            about, counted = f"page {page}", pool.references(page)
            yield about, pool.has_prefix_cache, "has two owners, but there is no prefix cache"
            yield about, counted == number, f"has {number} owners, but {counted} are counted"
            yield about, page not in written, "has two owners, but one of them will write to it"
    num_owned = pool.num_pages - pool.num_free
    yield "pool", len(owners) == num_owned, f"{num_owned} pages are in use, but {len(owners)} have an owner"


def _memory(length: int, session: Session) -> Iterator[Claim]:
    num_tokens, most_cached = len(session.tokens), session.most_cached
    yield session, not session.finished, "is finished, but has memory"
    yield session, length < num_tokens, f"has {length} tokens cached of {num_tokens}, but one must be fed"
    yield session, length <= most_cached, f"has {length} tokens cached, and logprobs of {most_cached} of them"


def _promises(core: VerifyCore) -> Iterator[Claim]:
    """Promises reserve no more memory than there is, and no more prompt tokens than their texts have."""
    promises, most = core.promises, core.pool.num_pages
    yield "promises", promises.num_pages <= most, f"{promises.num_pages} pages of {most} are reserved"
    for session_id, deadline in promises.promised.items():
        session = core.sessions.get(session_id)
        if session is not None and session.promised is not None:
            left, num_tokens = deadline.prompt_left, len(session.tokens)
            yield session, 0 <= left <= num_tokens, f"has {left} tokens to read of {num_tokens}"
            yield session, session.promised, "was told that it is not promised, and is"
    for session in core.sessions.values():
        is_new = not promises.awaits_decision(session) or len(session.tokens) == session.num_given
        yield session, is_new, "has tokens from here, but its deadline is undecided"


def _phase(session: Session) -> Iterator[Claim]:
    phase, reason = session.phase, session.finish_reason
    has_none = session.last_verdict is None
    yield session, (phase in (Phase.COMPILING, Phase.OPENED)) == has_none, "its phase and its last verdict disagree"
    yield session, (phase is Phase.FINISHED) == (reason is not None), f"it ends for {reason!r}"
    yield session, not session.is_compiling or session.opened.constraint is not None, "it has no constraint to compile"
    if has_none:
        may_draft = session.drafts.may_draft
        yield session, not may_draft, f"{may_draft} tokens may be drafted before the first verdict"


def _draft(session: Session) -> Iterator[Claim]:
    drafted = session.drafts.newest
    is_permitted = not session.drafts.waits or session.drafts.may_draft > 0
    yield session, is_permitted, "rounds wait for a draft that is not permitted"
    if drafted is not None:
        is_whole = drafted.made_on == len(session.tokens)
        yield session, drafted.made_on <= len(session.tokens), "its draft does not follow its text"
        is_allowed = is_whole or drafted.proposal is None
        yield session, is_allowed, "the rest of a draft of the ratio rule may be verified"
        yield session, is_whole or bool(drafted.tokens), "its draft is empty"
        yield session, not session.finished, "it has a draft, but is finished"


def _text(session: Session) -> Iterator[Claim]:
    given, num_tokens, limit = session.num_given, len(session.tokens), session.limit
    yield session, given <= num_tokens <= limit, f"it has {num_tokens} tokens of {given} to {limit}"
    if session.last_verdict is None:
        yield session, num_tokens == given, "it has tokens that no verdict sent"
    if session.finish_reason == "length":
        yield session, num_tokens == limit, f"it ended at {num_tokens} of {limit} tokens for its length"
    if session.phase is not Phase.FINISHED:
        yield session, num_tokens < limit, "it goes on at its limit"


def _acknowledged(session: Session) -> Iterator[Claim]:
    num_tokens, lengths, acked = len(session.tokens), [length for length, _ in session.sent], session.acked
    yield session, acked <= num_tokens, f"{acked} tokens of {num_tokens} are acknowledged"
    yield session, lengths == sorted(lengths), "its unacknowledged verdicts are out of order"
    yield session, not lengths or acked <= lengths[0], "an acknowledged verdict still counts as unacknowledged"
    yield session, not lengths or lengths[-1] <= num_tokens, "a verdict sent more tokens than there are"
    wanted = session.num_unacknowledged if session.opened.num_logprobs is not None else 0
    known, kept = session.prompt_logprobs, len(session.logprobs)
    is_within = known is None or len(known) < len(session.opened.prompt)
    yield session, is_within, "it has more prompt logprobs than prompt tokens"
    is_first = known is None or acked == session.num_given
    yield session, is_first, "its prompt logprobs are kept after its first verdict"
    has_all = not session.lacks_prompt_logprobs or session.last_verdict is None
    yield session, has_all, "it continued without its prompt logprobs"
    yield session, kept == wanted, f"{kept} logprobs are kept for {wanted} tokens"
