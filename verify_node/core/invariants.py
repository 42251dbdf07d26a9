"""Checks what must hold between any two events: in one session, in one client, and between the parts of a verify core.

`validate` runs all checks; `CheckedCore` runs them after every event. Each check raises BrokenInvariant for the first
claim that does not hold, and changes nothing.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from goodspeed.engine.paged.pages import PagePool
from verify_node.core.core import VerifyCore
from verify_node.core.counts import MAX_REFUSALS, MAX_VISITS, Diary
from verify_node.core.rate_limit import MAX_SENDERS, RateLimiter
from verify_node.core.register import Register
from verify_node.scheduler.round import Entry, Round, RoundLimits
from verify_node.session.client import Client, Peer
from verify_node.session.phase import BrokenInvariant, Phase
from verify_node.session.session import Session
from verify_node.slo.promises import Promises

Claim: TypeAlias = tuple[bool, str]
"""A claim: whether it holds, and the fault to report if it does not hold."""


def require(what: str, claims: Iterable[Claim]) -> None:
    """Raises BrokenInvariant for the first claim on `what` that does not hold."""
    for holds, wrong in claims:
        if not holds:
            raise BrokenInvariant(f"{what}: {wrong}")


def validate(core: VerifyCore) -> None:
    """Raises BrokenInvariant with the first fault and its place."""
    register, clients = core.register, core.allocator.clients
    check_register(register, clients)
    check_sessions(core.sessions)
    check_clients(clients, core.num_rounds)
    if core.in_flight is not None:
        check_round(core.in_flight, core.taking_part, register, core.limits)
    else:
        check_pool(core.pool, core.sessions, register.released)
    check_promises(core.promises, core.sessions, core.pool)
    check_memories(core.diary, core.rate_limiter)


Given = ParamSpec("Given")
Result = TypeVar("Result")


def _checked(
    event: Callable[Concatenate[VerifyCore, Given], Result],
) -> Callable[Concatenate[VerifyCore, Given], Result]:
    def then_validate(core: VerifyCore, /, *args: Given.args, **options: Given.kwargs) -> Result:
        result = event(core, *args, **options)
        validate(core)
        return result

    return then_validate


class CheckedCore(VerifyCore):
    """A core that validates itself after every event, for tests and simulations. Slow: it checks every page."""

    enrol = _checked(VerifyCore.enrol)
    know_replicas = _checked(VerifyCore.know_replicas)
    receive = _checked(VerifyCore.receive)
    reject = _checked(VerifyCore.reject)
    fail = _checked(VerifyCore.fail)
    tick = _checked(VerifyCore.tick)
    farewell = _checked(VerifyCore.farewell)
    admit = _checked(VerifyCore.admit)
    withdraw = _checked(VerifyCore.withdraw)
    plan = _checked(VerifyCore.plan)
    finish = _checked(VerifyCore.finish)
    abort = _checked(VerifyCore.abort)


def check_sessions(sessions: Mapping[bytes, Session]) -> None:
    """Checks that each session's fields agree with its phase."""
    for session in sessions.values():
        require(_session(session), claims_on_session(session))


def check_clients(clients: Mapping[str, Client], num_rounds: int) -> None:
    """Checks that estimates are in range and that clients are registered by their own names."""
    for name, client in clients.items():
        named = (client.name == name, f"is named {client.name!r}")
        require(f"client {name!r}", [*claims_on_client(client, num_rounds), named])


def check_memories(diary: Diary, rate_limiter: RateLimiter) -> None:
    """Checks that diary and rate limiter stay within their bounds."""
    kept, remembered = len(diary), rate_limiter.num_senders
    require("diary", [(kept <= MAX_VISITS + MAX_REFUSALS, f"keeps {kept} entries")])
    require("rate limiter", [(remembered <= MAX_SENDERS, f"remembers {remembered} senders")])


def check_register(register: Register, clients: Mapping[str, Client]) -> None:
    """Checks that peers, sessions and clients refer to each other consistently, within their limits."""
    for peer_id, peer in register.peers.items():
        enrolled = register.enrolled
        known = clients.get(peer.client.name) is peer.client
        is_enrolled = enrolled is None or (peer.principal is not None and peer.principal in enrolled)
        claims = [
            (peer.peer_id == peer_id, f"calls itself {peer.peer_id!r}"),
            (known, "is of a client that the allocator does not know"),
            (is_enrolled, "has a key that is not enrolled"),
        ]
        require(f"peer {peer_id!r}", claims)
    for session_id, session in register.sessions.items():
        require(_session(session), _membership(session_id, session, register.peers, clients))
        require(_session(session), [(register.has_form(session), "does not hold its form")])
    for session_id in register.lost_forms():
        require(f"session {session_id.hex()}", [(False, "holds a constraint that nothing will release")])
    num_own = Counter(session.client.name for session in register.sessions.values())
    claims = [(len(register.sessions) <= register.max_sessions, "too many sessions are open")]
    claims += [
        (num <= register.max_client_sessions, f"{name!r} has {num} sessions open") for name, num in num_own.items()
    ]
    claims += [(len({one.admitted for one in register.sessions.values()}) == len(register.sessions), "two are one age")]
    require("register", claims)


def _membership(
    session_id: bytes, session: Session, peers: Mapping[bytes, Peer], clients: Mapping[str, Client]
) -> Iterable[Claim]:
    peer = peers.get(session.peer_id)
    yield session.session_id == session_id, f"is registered as {session_id.hex()}"
    yield clients.get(session.client.name) is session.client, "is of a client that the allocator does not know"
    yield peer is not None, f"is of peer {session.peer_id!r}, which is not connected"
    yield peer is None or peer.client is session.client, f"is of peer {session.peer_id!r}, which is another client's"


def check_round(done: Round, taking_part: Mapping[bytes, Session], register: Register, limits: RoundLimits) -> None:
    """Checks that the round in flight is within its limits, and that its sessions have not changed since planning."""
    claims = [
        (done.num_drafted <= limits.budget, f"drafts {done.num_drafted} tokens of {limits.budget}"),
        (done.num_tokens <= limits.max_round_tokens, f"feeds {done.num_tokens} tokens of {limits.max_round_tokens}"),
        ([entry.session_id for entry in done.entries] == [*taking_part], "has other entries than sessions"),
    ]
    require(f"round {done.number}", claims)
    for entry in done.entries:
        session = taking_part[entry.session_id]
        if register.has(session):
            require(_session(session), _entry(entry, session))
        else:
            gone = entry.session_id in register.released
            require(_session(session), [(gone, "left its round, but its memory will not be freed")])


def _entry(entry: Entry, session: Session) -> Iterable[Claim]:
    num_tokens = len(session.tokens)
    yield session.phase is not Phase.FINISHED, "takes part in a round"
    yield entry.epoch == session.epoch, f"takes part in a round in epoch {entry.epoch}"
    if entry.samples:
        yield entry.base_len == num_tokens, f"is verified from {entry.base_len} on, but has {num_tokens} tokens"
    else:
        yield entry.base_len < num_tokens, f"is fed up to {entry.base_len}, but has {num_tokens} tokens"


def check_pool(pool: PagePool, sessions: Mapping[bytes, Session], released: Container[bytes]) -> None:
    """Checks that every page belongs to an open session or is about to be freed.

    To be called only while no round is in flight, because the target writes pages then. A page that several sessions
    share must be full in each, and its reference count must equal their number.
    """
    owners: Counter[int] = Counter()
    written: set[int] = set()  # pages that are not full
    for key in pool:
        pages, length = pool.table(key).tolist(), pool.length(key)
        owners.update(pages)
        written.update(pages[length // pool.page_size :])
        session = sessions.get(key) if isinstance(key, bytes) else None
        if key not in released:
            require(f"session {_name(key)}", _memory(length, session))
    for page, number in owners.items():
        if number > 1 or pool.references(page) > 1:
            require(f"page {page}", _shared(page, number, pool, is_written=page in written))
    num_owned = pool.num_pages - pool.num_free
    require("pool", [(len(owners) == num_owned, f"{num_owned} pages are in use, but {len(owners)} have an owner")])


def _shared(page: int, num_owners: int, pool: PagePool, *, is_written: bool) -> Iterable[Claim]:
    counted = pool.references(page)
    yield pool.has_prefix_cache, "has two owners, but there is no prefix cache"
    yield counted == num_owners, f"has {num_owners} owners, but {counted} are counted"
    yield not is_written, "has two owners, but one of them will write to it"


def check_promises(promises: Promises, sessions: Mapping[bytes, Session], pool: PagePool) -> None:
    """Checks that promises reserve no more memory than there is, and no more prompt tokens than their texts have."""
    num_pages = promises.num_pages
    require("promises", [(num_pages <= pool.num_pages, f"{num_pages} pages of {pool.num_pages} are reserved")])
    for session_id, deadline in promises.promised.items():
        session = sessions.get(session_id)
        if session is not None and session.promised is not None:
            fits = 0 <= deadline.prompt_left <= len(session.tokens)
            wrong = f"has {deadline.prompt_left} tokens to read of {len(session.tokens)}"
            require(_session(session), [(fits, wrong), (session.promised, "was told that it is not promised, and is")])


def _memory(length: int, session: Session | None) -> Iterable[Claim]:
    yield session is not None, "is not open, but has memory that will not be freed"
    if session is not None:
        yield not session.finished, "is finished, but has memory"
        yield length < len(session.tokens), f"has {length} tokens cached of {len(session.tokens)}, but one must be fed"
        yield (
            length <= session.num_readable,
            f"has {length} tokens cached, and logprobs of {session.num_readable} of them",
        )


def _session(session: Session) -> str:
    return f"session {session.session_id.hex()} ({session.phase.value})"


def _name(key: object) -> str:
    return key.hex() if isinstance(key, bytes) else repr(key)


def claims_on_session(session: Session) -> Iterator[Claim]:
    """Yields all claims on a session's own fields."""
    yield from _phase(session)
    yield from _draft(session)
    yield from _text(session)
    yield from _acknowledged(session)


def claims_on_client(client: Client, num_rounds: int) -> Iterator[Claim]:
    """num_rounds: verify rounds started so far."""
    times = (client.round_trip_s, client.answer_s)
    yield min(times) >= 0.0, f"one of the smoothed times {times} is negative"
    yield client.num_accepted <= client.num_drafted, "more drafted tokens were accepted than verified"
    yield client.observed_round <= num_rounds, f"it was observed in round {client.observed_round}, which never began"


def _phase(session: Session) -> Iterator[Claim]:
    phase = session.phase
    yield (phase is Phase.OPENED) == (session.last_verdict is None), "its phase and its last verdict disagree"
    yield (phase is Phase.FINISHED) == (session.finish_reason is not None), f"it ends for {session.finish_reason!r}"
    if phase is Phase.OPENED:
        yield not session.may_draft, f"{session.may_draft} tokens may be drafted before the first verdict"


def _draft(session: Session) -> Iterator[Claim]:
    drafted = session.drafted
    yield not session.waits or session.may_draft > 0, "rounds wait for a draft that is not permitted"
    if drafted is not None:
        is_whole = not drafted.num_gone
        yield drafted.made_on + drafted.num_gone == len(session.tokens), "its draft does not follow its text"
        yield is_whole or drafted.proposal is None, "the rest of a draft of the ratio rule may be verified"
        yield is_whole or bool(drafted.tokens), "its draft is empty"
        yield not session.finished, "it has a draft, but is finished"


def _text(session: Session) -> Iterator[Claim]:
    given, num_tokens, phase = session.num_given, len(session.tokens), session.phase
    yield given <= num_tokens <= session.limit, f"it has {num_tokens} tokens of {given} to {session.limit}"
    if phase is Phase.OPENED:
        yield num_tokens == given, "it has tokens that no verdict sent"
    if session.finish_reason == "length":
        yield num_tokens == session.limit, f"it ended at {num_tokens} of {session.limit} tokens for its length"
    if phase is not Phase.FINISHED:
        yield num_tokens < session.limit, "it goes on at its limit"


def _acknowledged(session: Session) -> Iterator[Claim]:
    num_tokens, lengths = len(session.tokens), [length for length, _ in session.sent]
    yield session.acked <= num_tokens, f"{session.acked} tokens of {num_tokens} are acknowledged"
    yield lengths == sorted(lengths), "its unacknowledged verdicts are out of order"
    yield not lengths or session.acked <= lengths[0], "an acknowledged verdict still counts as unacknowledged"
    yield not lengths or lengths[-1] <= num_tokens, "a verdict sent more tokens than there are"
    wanted = session.num_unacknowledged if session.opened.num_logprobs is not None else 0
    known = session.prompt_logprobs
    yield known is None or len(known) < len(session.opened.prompt), "it has more prompt logprobs than prompt tokens"
    yield (
        known is None or session.acked == session.num_given,
        "its prompt logprobs are kept after its first verdict",
    )
    yield not session.lacks_prompt_logprobs or session.phase is Phase.OPENED, "it continued without its prompt logprobs"
    yield len(session.logprobs) == wanted, f"{len(session.logprobs)} logprobs are kept for {wanted} tokens"
