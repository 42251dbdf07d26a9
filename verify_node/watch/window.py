"""The window inside a verify node's process: listens from the beginning, and serves beside the daemon."""

import asyncio
import time
from functools import partial

from goodspeed import __version__
from goodspeed.serving import metrics, web
from verify_node.config import VerifyConfig
from verify_node.daemon import VerifyDaemon
from verify_node.watch.app import create_app
from verify_node.watch.feed import Feed
from verify_node.watch.metrics import create_registry
from verify_node.watch.snapshot import Node, Watch

REALM = "GoodSpeed verify node"


class Window:
    """The HTTP server of the window."""

    def __init__(self, config: VerifyConfig, daemon: VerifyDaemon, bound: web.BoundAddress) -> None:
        """Starts listening; TransportError where another process took the address meanwhile."""
        self._config = config
        self._daemon = daemon
        self._keys = bound.keys
        self._listener = bound.listener
        web.start_listening(self._listener)

    @property
    def url(self) -> str:
        return web.url(self._listener)

    async def serve(self) -> None:
        """Runs the daemon with its window until cancelled."""
        feed = Feed(Watch(self._daemon, self._node(), time.time() - time.monotonic()).take, time.monotonic)
        core = self._daemon.core
        app = create_app(feed, partial(metrics.exposition, create_registry(self._daemon)), lambda: not core.draining)
        async with asyncio.TaskGroup() as tasks:
            guarded = web.LocalHost(app) if self._keys is None else web.KeyCheck(app, self._keys, REALM)
            tasks.create_task(web.serve(guarded, self._listener))
            try:
                await self._daemon.serve()
            finally:
                feed.end()

    def _node(self) -> Node:
        return Node(
            boot_id=self._daemon.core.welcome.boot_id.hex(),
            version=__version__,
            model=self._daemon.core.welcome.target,
            policy=self._config.policy,
            rounds=self._config.rounds,
            budget=self._daemon.core.limits.budget,
        )
