"""The window as part of a verify node's process: its address, its keys, and its life beside the daemon's."""

import asyncio
import socket
import time
from functools import partial

from goodspeed import __version__, metrics, web
from verify_node.config import VerifyConfig
from verify_node.daemon import VerifyDaemon
from verify_node.metrics import create_registry
from verify_node.window.app import create_app
from verify_node.window.feed import Feed
from verify_node.window.snapshot import Node, Watch

REALM = "GoodSpeed verify node"

PATIENCE_S = 20
"""A viewer that takes nothing for so long is cut off."""


class Window:
    """Holds its address from the beginning; serves when there is a daemon to look at."""

    def __init__(self, config: VerifyConfig) -> None:
        """ConfigError for a wrong address or file of keys, TransportError for an address that is taken."""
        self._config = config
        self._keys = web.read_keys(config.api_key) if config.api_key is not None else None
        self._listener = web.listen(web.parse_address(config.http or ""), self._keys)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it
            self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PATIENCE_S * 1000)

    @property
    def url(self) -> str:
        return web.url(self._listener)

    async def serve(self, daemon: VerifyDaemon) -> None:
        """Runs the daemon with its window until cancelled."""
        feed = self._feed(daemon)
        app = create_app(feed, partial(metrics.exposition, create_registry(daemon)))
        async with asyncio.TaskGroup() as tasks:
            guarded = web.KeyCheck(app, self._keys, REALM) if self._keys is not None else app
            tasks.create_task(web.serve(guarded, self._listener))
            try:
                await daemon.serve()
            finally:
                feed.end()

    def _feed(self, daemon: VerifyDaemon) -> Feed:
        config = self._config
        node = Node(
            boot_id=daemon.core.welcome.boot_id.hex(),
            version=__version__,
            model=daemon.target.checkpoint.name,
            policy=config.policy,
            rounds=config.rounds,
            budget=daemon.core.limits.budget,
        )
        return Feed(Watch(daemon, node, time.time() - time.monotonic()).take, time.monotonic)
