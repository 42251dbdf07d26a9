"""A snapshot made up for tests, and an application that serves it."""

from collections.abc import Callable

from msgspec.structs import replace
from starlette.applications import Starlette

from verify_node.watch.app import Feed, create_app
from verify_node.watch.snapshot import ClientRow, Node, Pool, Snapshot

NODE = Node("00", "1.2.3", "tiny-target", "gradient", "continuous", 8)
EMPTY = Snapshot(
    at=0.0,
    node=NODE,
    num_rounds=0,
    num_tokens=0,
    num_drafted=0,
    wall_s=dict.fromkeys(("receive", "forward", "verify", "schedule", "send"), 0.0),
    utility=None,
    pool=Pool(64, 0, 16),
    refusals={},
    num_clients=0,
    clients=(),
    events=(),
)
"""Before the first round, and nobody is there."""

WRITES = ClientRow(
    name="client-1",
    state="connected",
    since=0.0,
    draft_models=("tiny-draft-s",),
    num_sessions=2,
    activity="writing",
    moved=0.0,
    may_draft=7,
    acceptance_rate=0.53,
    goodput=1.42,
    weight=1.0,
    num_tokens=1094,
    num_drafted=900,
)


def take(now: float) -> Snapshot:
    return replace(EMPTY, at=now)


def make_app(feed: Feed | None = None, is_ready: Callable[[], bool] = lambda: True) -> Starlette:
    exposition = b"goodspeed_up 1\n", "text/plain; version=0.0.4"
    return create_app(feed or Feed(take, lambda: 0.0), lambda: exposition, is_ready, lambda: {"01": ["a line"]})
