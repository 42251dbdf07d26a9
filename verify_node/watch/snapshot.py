"""The window's contents at one moment, as plain data. No prompts, no texts, no tokens: counts and estimates only.

Reads the daemon in its own event loop and changes nothing. Times are seconds since the epoch, for the browser.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from goodspeed.drafting.sources import by_source
from verify_node.core.core import VerifyCore
from verify_node.core.counts import Counts, DiaryEntry
from verify_node.watch.present import Present, log_utility, present_clients, shown
from verify_node.watch.round_events import WallTime

WINDOW_S = 10.0
"""Seconds over which rates are taken."""

LOST_SHOWN_S = 300.0
"""Seconds for which a lost client is still shown."""

SILENT_HEARTBEATS = 2.5
"""Heartbeat intervals without a message after which a client is shown as silent; its lease still runs."""

STALLED_S = 5.0
"""Seconds without progress in any session after which a client is shown as stalled, with old estimates."""

MAX_EVENTS = 40
MAX_MODELS = 4

State = Literal["connected", "silent", "lost"]
Activity = Literal["writing", "stalled", "idle"]


class Node(Struct, frozen=True):
    """Facts that stay the same while the verify node runs."""

    boot_id: str  # new after a restart
    version: str
    model: str
    policy: str
    rounds: str
    budget: int


class ClientRow(Struct, frozen=True):
    """One client. since: when it connected, or was lost.

    The estimates of a client that is not writing are those of its latest text.
    """

    name: str
    state: State
    since: float
    draft_models: tuple[str, ...]
    num_sessions: int  # unfinished
    activity: Activity  # idle: without unfinished session; stalled: none of them moves
    moved: float | None  # time of its sessions' latest progress; None without unfinished session
    may_draft: int  # S, summed over its sessions: tokens beyond their texts
    drafted_per_round: float  # its tokens verified lately
    acceptance_rate: float  # Eq. (3)
    goodput: float  # Eq. (4), tokens per round
    weight: float
    num_tokens: int  # delivered since the verify node started
    share: float  # of all tokens delivered lately


class Source(Struct, frozen=True):
    """Drafted tokens of one source since the verify node started: `model`, `ngram` or `self`."""

    name: str
    num_drafted: int  # and verified
    num_accepted: int


class Pool(Struct, frozen=True):
    """Pages of the KV cache."""

    num_pages: int
    num_used: int
    page_size: int  # tokens


class Rates(Struct, frozen=True):
    """Rates over the past `over_s` seconds; 0 before the second look."""

    over_s: float
    rounds_per_s: float
    tokens_per_s: float
    drafted_per_round: float  # drafted tokens verified; at most the budget
    wall_s: dict[str, float]  # seconds of the rounds in that time, by phase


class Snapshot(Struct, frozen=True):
    """All data of the page."""

    at: float
    node: Node
    num_rounds: int
    num_tokens: int
    utility: float | None  # None while no client generates
    rates: Rates
    pool: Pool
    refusals: dict[str, int]  # by code
    num_clients: int  # present; clients beyond a bound have no row
    clients: tuple[ClientRow, ...]
    events: tuple[DiaryEntry, ...]  # `at` in seconds of the epoch
    sources: tuple[Source, ...] = ()
    num_after_wrong: int = 0  # rounds of a text right after a wrong drafted token
    num_empty_after_wrong: int = 0  # of these, with nothing drafted


class _Mark(Struct, frozen=True):
    """The counters at one moment."""

    at: float
    num_rounds: int  # finished
    num_tokens: int
    num_drafted: int
    wall_s: dict[str, float]
    client_tokens: dict[str, int]
    client_drafted: dict[str, int]


class Recent:
    """The counters at the looks of the past WINDOW_S seconds. Costs nothing without viewers."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()

    def look(self, core: VerifyCore, wall: WallTime, now: float) -> None:
        """Records the current counters."""
        counts, clients = core.counts, core.allocator.clients.items()
        mark = _Mark(
            at=now,
            num_rounds=counts.round_s.num_values,
            num_tokens=counts.num_tokens,
            num_drafted=counts.num_drafted,
            wall_s=dict(vars(wall)),
            client_tokens={name: client.num_tokens for name, client in clients},
            client_drafted={name: client.num_drafted for name, client in clients},
        )
        self._marks.append(mark)
        while now - self._marks[0].at > WINDOW_S:
            self._marks.popleft()

    @property
    def rates(self) -> Rates:
        old, new = self._marks[0], self._marks[-1]
        elapsed_s = new.at - old.at
        per_s = 1 / elapsed_s if elapsed_s else 0.0
        wall_s = {phase: new.wall_s[phase] - old.wall_s[phase] for phase in new.wall_s}
        # A wait is counted when it ends, even if it began before this time: limit it to the time not busy.
        busy_s = sum(wall_s.values()) - wall_s["receive"]
        wall_s["receive"] = min(wall_s["receive"], max(0.0, elapsed_s - busy_s))
        return Rates(
            over_s=elapsed_s,
            rounds_per_s=self._num_rounds * per_s,
            tokens_per_s=(new.num_tokens - old.num_tokens) * per_s,
            drafted_per_round=self._per_round(new.num_drafted - old.num_drafted),
            wall_s=wall_s,
        )

    def share(self, client: str) -> float:
        """Returns the client's share of the tokens delivered in the past WINDOW_S seconds."""
        old, new = self._marks[0], self._marks[-1]
        num_tokens = new.num_tokens - old.num_tokens
        own = new.client_tokens.get(client, 0) - old.client_tokens.get(client, 0)
        return own / num_tokens if num_tokens else 0.0

    def drafted_per_round(self, client: str) -> float:
        """Returns the client's part of `Rates.drafted_per_round`; the parts of all clients sum to it."""
        old, new = self._marks[0], self._marks[-1]
        return self._per_round(new.client_drafted.get(client, 0) - old.client_drafted.get(client, 0))

    @property
    def _num_rounds(self) -> int:
        return self._marks[-1].num_rounds - self._marks[0].num_rounds

    def _per_round(self, number: int) -> float:
        return number / self._num_rounds if self._num_rounds else 0.0


class Watch:
    """Takes snapshots of one daemon, and holds the counters that rates need."""

    def __init__(self, core: VerifyCore, wall: WallTime, node: Node, zero_s: Callable[[], float]) -> None:
        """zero_s: returns the zero of the daemon's clock, in seconds since the epoch; a suspended machine moves it."""
        self._core = core
        self._wall = wall
        self._node = node
        self._zero_s = zero_s
        self._epoch_s = 0.0
        self._recent = Recent()

    def take(self, now: float) -> Snapshot:
        """Takes a snapshot; now: the time of the daemon's clock."""
        core, pool = self._core, self._core.pool
        self._epoch_s = self._zero_s()
        self._recent.look(core, self._wall, now)
        present = present_clients(core)
        return Snapshot(
            at=self._epoch_s + now,
            node=self._node,
            num_rounds=core.rounds.num_rounds,
            num_tokens=core.counts.num_tokens,
            utility=log_utility(present) if any(one.unfinished for one in present) else None,
            rates=self._recent.rates,
            pool=Pool(pool.num_pages, pool.num_pages - pool.num_free, pool.page_size),
            refusals=dict(core.replies.refusals),
            num_clients=len(present),
            clients=(*self._present(present, now), *self._lost(present, now)),
            events=tuple(self._events()),
            sources=_sources(core.counts),
            num_after_wrong=core.counts.num_after_wrong,
            num_empty_after_wrong=core.counts.num_empty_after_wrong,
        )

    def _present(self, present: list[Present], now: float) -> Iterator[ClientRow]:
        for one in shown(present):
            if one.peers:
                silent_s = now - max(peer.last_seen for peer in one.peers)
                state: State = (
                    "silent" if silent_s > SILENT_HEARTBEATS * self._core.welcome.heartbeat_s else "connected"
                )
                yield self._row(one, state, min(peer.since for peer in one.peers), now)

    def _lost(self, present: list[Present], now: float) -> Iterator[ClientRow]:
        """Yields rows of lost clients that have not returned, the newest last."""
        connected = {one.client.name for one in present if one.peers}
        for loss in self._core.diary.losses_since(now - LOST_SHOWN_S):
            client = self._core.allocator.clients.get(loss.client)
            if loss.client not in connected and client is not None:
                yield self._row(Present(client), "lost", loss.at, now, (loss.what,))

    def _row(self, one: Present, state: State, since: float, now: float, draft_models: Iterable[str] = ()) -> ClientRow:
        models = draft_models or dict.fromkeys(peer.hello.draft_model for peer in one.peers)
        client, moved_at = one.client, one.moved_at
        return ClientRow(
            name=client.name,
            state=state,
            since=self._epoch_s + since,
            draft_models=tuple(model for model in models if model)[:MAX_MODELS],
            num_sessions=len(one.unfinished),
            activity=_activity(moved_at, now),
            moved=None if moved_at is None else self._epoch_s + moved_at,
            may_draft=one.may_draft,
            drafted_per_round=self._recent.drafted_per_round(client.name),
            acceptance_rate=client.acceptance.value,
            goodput=client.goodput.value,
            weight=client.weight,
            num_tokens=client.num_tokens,
            share=self._recent.share(client.name),
        )

    def _events(self) -> Iterator[DiaryEntry]:
        for entry in self._core.diary.entries()[:MAX_EVENTS]:
            yield replace(entry, at=self._epoch_s + entry.at)


def _sources(counts: Counts) -> tuple[Source, ...]:
    accepted = by_source(counts.accepted_by)
    return tuple(Source(name, drafted, accepted[name]) for name, drafted in by_source(counts.drafted_by).items())


def _activity(moved_at: float | None, now: float) -> Activity:
    if moved_at is None:
        return "idle"
    return "stalled" if now - moved_at > STALLED_S else "writing"
