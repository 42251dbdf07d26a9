"""Runs `goodspeed-draft --http`: the daemon, its service and the HTTP server in one event loop."""

import asyncio
from dataclasses import dataclass
from functools import partial

from draft_node.config import DraftConfig
from draft_node.http.app import create_app
from draft_node.http.metrics import DraftCollector
from draft_node.process.connection_status import tell
from draft_node.process.daemon import DraftDaemon
from draft_node.service.chat_support import ChatSupport
from draft_node.service.service import Service
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.serving.events import EventLog, Reporter
from goodspeed.serving.loop import first_end, stop
from goodspeed.serving.measuring import metrics
from goodspeed.serving.measuring.counts import ResponseCounts
from goodspeed.serving.web import address
from goodspeed.serving.web.connection_limit import MAX_CONNECTIONS
from goodspeed.serving.web.guards import Counted, LocalHost
from goodspeed.serving.web.server import serve

DRAIN_S = 30.0
"""Time for running and waiting texts when the node is told to stop."""


@dataclass
class HttpServer:
    """Serves until cancelled; then stops admission and lets admitted texts finish within DRAIN_S."""

    config: DraftConfig
    vocabulary: Vocabulary
    daemon: DraftDaemon
    events: EventLog
    bound: address.BoundAddress
    reporter: Reporter
    all_finished: bool = True

    def __post_init__(self) -> None:
        self.chats = ChatSupport.of(
            self.vocabulary.tokenizer,
            tools=self.config.tool_parser,
            thinking=self.config.reasoning_parser,
            settings=self.config.template_variables(),
        )

    async def run(self) -> None:
        keys = self.bound.keys
        service = Service(
            self.daemon,
            self.vocabulary,
            max_waiting=self.config.http_max_waiting,
            chats=self.chats,
            refuses_control_tokens=self.config.refuse_control_tokens,
        )
        answers = ResponseCounts()
        registry = metrics.create_registry(DraftCollector(self.daemon, service.stats, answers))
        exposition = partial(metrics.exposition, registry)
        app = create_app(service, self.config, exposition, keys)
        counted = Counted(LocalHost(app) if keys is None else app, answers)
        with self.bound.listener as listener:
            address.start_listening(listener)
            serving = asyncio.create_task(self.daemon.serve())
            answering = asyncio.create_task(serve(counted, listener, max_connections=self._max_connections))
            url = address.url(listener)
            self.events.write("ready", name=self.config.name, model=self.config.model, url=url)
            telling = asyncio.create_task(tell(self.config, self.daemon, self.events, self.reporter, url))
            try:
                await first_end(serving, answering, telling)
            finally:
                is_draining = not serving.done() and self._tell_that_it_ends()
                service.draining = True
                self.all_finished = await counted.all_sent(DRAIN_S)
                if not self.all_finished:
                    await service.cut_off(DRAIN_S)
                elif is_draining:
                    self.reporter.say("stopping: no text is running any more")
                await stop(telling, answering)  # the daemon still runs, to close sessions
                await stop(serving)
                service.close()

    def _tell_that_it_ends(self) -> bool:
        """Reports the end of this node, and whether it waits for texts, which it returns."""
        num_texts = self.daemon.core.queue.num_running + self.daemon.core.queue.num_waiting
        if not num_texts:
            self.reporter.say("stopping")
            return False
        texts = "1 unfinished text" if num_texts == 1 else f"{num_texts} unfinished texts"
        what = "draining: %s may go on for %g s; a second signal (Ctrl-C) ends this node at once"
        self.reporter.say(what, texts, DRAIN_S)
        return True

    @property
    def _max_connections(self) -> int:
        """Room for all texts that may run and wait, and for as many other requests as one user may have texts."""
        return max(MAX_CONNECTIONS, 2 * self.config.max_sessions + 3 * self.config.http_max_waiting)

    def summary(self) -> dict[str, object]:
        """Returns counts over all texts, for the `stopped` event."""
        statistics = self.daemon.core.statistics
        return {
            "name": self.config.name,
            "model": self.config.model,
            "all_finished": self.all_finished,
            "draft_acceptance_rate": statistics.draft_acceptance_rate,
            **statistics.by_name(),
        }
