"""Serves the verify node's page and metrics in its process, while the daemon runs."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial

from goodspeed import __version__
from goodspeed.serving import web
from goodspeed.serving.measuring import metrics
from goodspeed.wire.channels import VerifyChannel
from verify_node.config import VerifyConfig
from verify_node.core.core import VerifyCore
from verify_node.watch.app import Feed, create_app, guarded
from verify_node.watch.metrics import create_registry
from verify_node.watch.round_events import WallTime
from verify_node.watch.snapshot import Node, Watch


async def serve(
    config: VerifyConfig,
    core: VerifyCore,
    wall: WallTime,
    channel: VerifyChannel,
    bound: web.BoundAddress,
    beside: Callable[[], Coroutine[None, None, None]],
) -> None:
    """Serves the page at `bound`, whose socket listens already, while `beside` runs, until cancelled."""
    node = Node(
        boot_id=core.welcome.boot_id.hex(),
        version=__version__,
        model=core.welcome.target,
        policy=config.policy,
        rounds=config.rounds,
        budget=core.limits.budget,
    )
    feed = Feed(Watch(core, wall, node, lambda: time.time() - time.monotonic()).take, time.monotonic)
    exposition = partial(metrics.exposition, create_registry(core, wall, channel))
    app = create_app(feed, exposition, lambda: not core.draining, core.sessions.story.all)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(web.serve(guarded(app, bound.keys), bound.listener))
        try:
            await beside()
        finally:
            feed.end()
