"""`goodspeed-draft --http`: the daemon, its service and the HTTP server in one event loop. Knows nothing of routes."""

import asyncio
from dataclasses import asdict
from functools import partial

from draft_node.api import create_app
from draft_node.config import DraftConfig
from draft_node.daemon import DraftDaemon
from draft_node.metrics import create_registry
from draft_node.service import Service
from goodspeed import metrics, web
from goodspeed.counts import Answers
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.events import EventLog


class Face:
    """Serves until cancelled; then lets nobody in, and running texts finish within `drain_timeout_s`."""

    def __init__(
        self, config: DraftConfig, checkpoint: Checkpoint, daemon: DraftDaemon, events: EventLog, keys: web.Keys | None
    ) -> None:
        self.config = config
        self.checkpoint = checkpoint
        self.daemon = daemon
        self.events = events
        self.keys = keys
        self.all_finished = True
        daemon.stays = True  # users are told that the verify node is away, for as long as it is

    async def run(self) -> None:
        service = Service(self.daemon, self.checkpoint, max_waiting=self.config.http_max_waiting)
        answers = Answers()
        exposition = partial(metrics.exposition, create_registry(self.daemon, service.texts, answers))
        app = create_app(service, self.config, exposition, self.keys)
        app = web.Counted(web.LocalHost(app) if self.keys is None else app, answers)
        with web.listen(web.parse_address(self.config.http or ""), self.keys) as listener:
            serving = asyncio.create_task(self.daemon.serve())
            answering = asyncio.create_task(web.serve(app, listener, max_connections=self._max_connections))
            telling = asyncio.create_task(self._tell_when_connected())
            self.events.write("ready", name=self.config.name, model=self.config.model, url=web.url(listener))
            try:
                await asyncio.wait([serving, answering], return_when=asyncio.FIRST_COMPLETED)
                for task in (serving, answering):
                    if task.done():
                        task.result()
            finally:
                self.all_finished = await service.drain(self.config.drain_timeout_s)
                await _stop(telling, answering)  # while it still serves, sessions can be closed
                await _stop(serving)

    @property
    def _max_connections(self) -> int:
        """Room for every user whose text runs or waits, and as many who ask something else."""
        return max(web.MAX_CONNECTIONS, 2 * (self.config.max_sessions + self.config.http_max_waiting))

    def summary(self) -> dict[str, object]:
        """Of all that was served."""
        statistics = self.daemon.statistics
        return {
            "name": self.config.name,
            "model": self.config.model,
            "all_finished": self.all_finished,
            "acceptance_rate": statistics.acceptance_rate,
            **asdict(statistics),
        }

    async def _tell_when_connected(self) -> None:
        await self.daemon.connected.wait()
        self.events.write("connected", name=self.config.name, verify=self.config.verify)


async def _stop(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
