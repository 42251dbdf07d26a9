"""The window in a verify node's process: serves while the daemon runs."""

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


class Window:
    """The HTTP server of the window."""

    def __init__(
        self, config: VerifyConfig, core: VerifyCore, wall: WallTime, channel: VerifyChannel, bound: web.BoundAddress
    ) -> None:
        self._config = config
        self._core = core
        self._wall = wall
        self._channel = channel
        self._keys = bound.keys
        self._listener = bound.listener  # listens already

    @property
    def url(self) -> str:
        return web.url(self._listener)

    async def serve(self, beside: Callable[[], Coroutine[None, None, None]]) -> None:
        """Serves the window while `beside` runs, until cancelled."""
        watch = Watch(self._core, self._wall, self._node(), lambda: time.time() - time.monotonic())
        feed = Feed(watch.take, time.monotonic)
        registry = create_registry(self._core, self._wall, self._channel)
        app = create_app(
            feed, partial(metrics.exposition, registry), lambda: not self._core.draining, self._core.sessions.story.all
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(web.serve(guarded(app, self._keys), self._listener))
            try:
                await beside()
            finally:
                feed.end()

    def _node(self) -> Node:
        return Node(
            boot_id=self._core.welcome.boot_id.hex(),
            version=__version__,
            model=self._core.welcome.target,
            policy=self._config.policy,
            rounds=self._config.rounds,
            budget=self._core.limits.budget,
        )
