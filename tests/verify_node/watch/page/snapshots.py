"""A snapshot made up for tests, and an application that serves it."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from starlette.applications import Starlette

from verify_node.watch.app import Feed, create_app
from verify_node.watch.snapshot import ClientRow, Node, Pool, Snapshot

NODE = Node("00", "1.2.3", "tiny-target", "gradient", "continuous", 8)
PHASES = ("receive", "forward", "verify", "schedule", "send")
EMPTY = Snapshot(0.0, NODE, 0, 0, 0, dict.fromkeys(PHASES, 0.0), None, Pool(64, 0, 16), {}, 0, (), ())
"""Before the first round, and nobody is there."""

FIGURES: dict[str, Any] = {"acceptance_rate": 0.53, "goodput": 1.42, "weight": 1.0, "num_tokens": 1094}
WRITES = ClientRow("client-1", "connected", 0.0, ("tiny-draft-s",), 2, "writing", 0.0, 7, num_drafted=900, **FIGURES)


def take(now: float) -> Snapshot:
    return replace(EMPTY, at=now)


def make_app(feed: Feed | None = None, is_ready: Callable[[], bool] = lambda: True) -> Starlette:
    exposition = b"goodspeed_up 1\n", "text/plain; version=0.0.4"
    return create_app(feed or Feed(take, lambda: 0.0), lambda: exposition, is_ready, lambda: {"01": ["a line"]})
