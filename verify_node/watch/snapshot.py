"""The page's contents at one moment, as plain data. No prompts, no texts, no tokens: counts and estimates only.

Reads the daemon in its own event loop and changes nothing. Times are seconds since the epoch, for the browser.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from goodspeed.drafting.sources import by_source
from verify_node.core.client_events import ClientEvent
from verify_node.core.core import VerifyCore
from verify_node.core.counts import Counts
from verify_node.watch.present_clients import Present, log_utility, present_clients, shown

LOST_SHOWN_S = 300.0
"""Seconds for which a lost client is still shown."""

SILENT_HEARTBEATS = 2.5
"""Heartbeat intervals without a message after which a client is shown as silent; its lease still runs."""

MOVED_S = 0.1
"""Change of the clocks' distance, in seconds, that is no jitter: the machine was suspended, or its clock was set."""

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
    acceptance_rate: float  # Eq. (3)
    goodput: float  # Eq. (4), tokens per round
    weight: float
    num_tokens: int  # delivered since the verify node started
    num_drafted: int  # its drafted tokens verified since then


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


class Snapshot(Struct, frozen=True):
    """All data of the page."""

    at: float
    node: Node
    num_rounds: int  # finished; the page takes rates of this and the other counters
    num_tokens: int
    num_drafted: int  # and verified
    wall_s: dict[str, float]  # seconds of the rounds, by phase
    utility: float | None  # None while no client generates
    pool: Pool
    refusals: dict[str, int]  # by code
    num_clients: int  # present; clients beyond a bound have no row
    clients: tuple[ClientRow, ...]
    events: tuple[ClientEvent, ...]  # `at` in seconds of the epoch
    sources: tuple[Source, ...] = ()


class Watch:
    """Takes snapshots of one daemon."""

    def __init__(self, core: VerifyCore, node: Node, zero_s: Callable[[], float]) -> None:
        """zero_s: returns the zero of the daemon's clock, in seconds since the epoch; a suspended machine moves it."""
        self._core = core
        self._node = node
        self._zero_s = zero_s
        self._epoch_s = 0.0

    def take(self, now: float) -> Snapshot:
        """Takes a snapshot; now: the time of the daemon's clock."""
        core, pool = self._core, self._core.pool
        if abs((zero_s := self._zero_s()) - self._epoch_s) > MOVED_S:  # else times of events would jitter
            self._epoch_s = zero_s
        present = present_clients(core)
        return Snapshot(
            at=self._epoch_s + now,
            node=self._node,
            num_rounds=core.counts.round_s.num_values,
            num_tokens=core.counts.num_tokens,
            num_drafted=core.counts.num_drafted,
            wall_s=dict(vars(core.counts.wall)),
            utility=log_utility(present) if any(one.unfinished for one in present) else None,
            pool=Pool(pool.num_pages, pool.num_pages - pool.num_free, pool.page_size),
            refusals=dict(core.replies.refusals),
            num_clients=len(present),
            clients=(*self._present(present, now), *self._lost(present, now)),
            events=tuple(
                replace(event, at=self._epoch_s + event.at) for event in core.client_events.newest_first(MAX_EVENTS)
            ),
            sources=_sources(core.counts),
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
        for loss in self._core.client_events.losses_since(now - LOST_SHOWN_S):
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
            acceptance_rate=client.acceptance.value,
            goodput=client.goodput.value,
            weight=client.weight,
            num_tokens=client.num_tokens,
            num_drafted=client.num_drafted,
        )


def _sources(counts: Counts) -> tuple[Source, ...]:
    accepted = by_source(counts.accepted_by)
    return tuple(Source(name, drafted, accepted[name]) for name, drafted in by_source(counts.drafted_by).items())


def _activity(moved_at: float | None, now: float) -> Activity:
    if moved_at is None:
        return "idle"
    return "stalled" if now - moved_at > STALLED_S else "writing"
