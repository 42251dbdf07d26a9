"""A snapshot made up for tests, and an application that serves it."""

from collections.abc import Callable

from msgspec.structs import replace
from starlette.applications import Starlette

from verify_node.window.app import create_app
from verify_node.window.feed import Feed
from verify_node.window.recent import Rates
from verify_node.window.snapshot import Node, Pool, Snapshot

EMPTY = Snapshot(
    at=0.0,
    node=Node("00", "1.2.3", "tiny-target", "gradient", "continuous", 8),
    num_rounds=0,
    num_tokens=0,
    utility=None,
    rates=Rates(0.0, 0.0, 0.0, dict.fromkeys(("receive", "forward", "verify", "schedule", "send"), 0.0)),
    pool=Pool(64, 0, 16),
    refusals={},
    num_clients=0,
    clients=(),
    events=(),
)


def take(now: float) -> Snapshot:
    return replace(EMPTY, at=now)


def make_app(feed: Feed | None = None, is_ready: Callable[[], bool] = lambda: True) -> Starlette:
    exposition = b"goodspeed_up 1\n", "text/plain; version=0.0.4"
    return create_app(feed or Feed(take, lambda: 0.0), lambda: exposition, is_ready)
