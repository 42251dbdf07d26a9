"""Answers draft nodes and HTTP requests while the model is loaded: this node lives, and is not ready yet."""

import asyncio
import logging
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from goodspeed.serving.loop import Failures
from goodspeed.wire.handshake import Hello
from goodspeed.wire.messages import Refusal, RefusalCode
from goodspeed.wire.zmq.transport import bind_verify
from verify_node.config import VerifyConfig
from verify_node.process.preflight import Found

if TYPE_CHECKING:  # HTTP is imported only where it is served
    from goodspeed.serving import web

logger = logging.getLogger("goodspeed.verify")

CODE: RefusalCode = "loading"
REFUSAL = Refusal(CODE, "this verify node is loading its model", "wait, and send Hello again")

MAX_MESSAGE_BYTES = 16 << 10
"""More than any Hello has."""

PAUSE_S = 0.02
"""Pause between two looks at what arrived: whatever is sent, loading goes on."""


class Loading:
    """Serves on a thread of its own, from the construction until `end`.

    Draft nodes that say Hello are refused as `loading`, and other messages are dropped. HTTP requests get 503, but
    `/health` 200.
    """

    def __init__(self, config: VerifyConfig, found: Found) -> None:
        """Binds the address for draft nodes, and listens for HTTP; TransportError if either is impossible."""
        self._channel = bind_verify(
            config.bind,
            max_message_bytes=MAX_MESSAGE_BYTES,
            trusted_network=config.trusted_network,
            keys=found.keys,
        )
        self._endpoint = self._channel.endpoint
        self._http = found.http
        try:
            if self._http is not None:
                _listen(self._http)
        except BaseException:
            self._channel.close()
            raise
        self._loop, self._is_over = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Loading":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> str:
        """Stops serving, and frees the address for draft nodes, which is returned with its actual port. HTTP requests
        wait from now on."""
        with suppress(RuntimeError):  # the loop is closed: this is the second call
            self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()
        return self._endpoint

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        serving = [asyncio.create_task(self._answer())]
        if self._http is not None:
            serving.append(asyncio.create_task(_serve_http(self._http)))
        try:
            await self._is_over.wait()
        finally:
            for task in serving:
                task.cancel()
            for result in await asyncio.gather(*serving, return_exceptions=True):
                if isinstance(result, Exception):
                    logger.error("nobody was told that the model was being loaded", exc_info=result)
            self._channel.close()

    async def _answer(self) -> None:
        """Refuses draft nodes, each once in PAUSE_S."""
        failures = Failures(logger, "an answer while loading")
        while True:
            async with failures.survived():
                await self._channel.readable()
                arrived = self._channel.receive_ready()
                for peer in {received.peer for received in arrived if isinstance(received.message, Hello)}:
                    self._channel.send(peer, REFUSAL)
            await asyncio.sleep(PAUSE_S)


def _listen(bound: "web.BoundAddress") -> None:
    from goodspeed.serving import web

    web.start_listening(bound.listener)


async def _serve_http(bound: "web.BoundAddress") -> None:
    from goodspeed.serving import web
    from verify_node.watch.app import create_loading_app, guarded

    app = guarded(create_loading_app(time.monotonic), bound.keys)
    await web.serve(app, bound.listener.dup())  # the server closes its socket; the page needs the other
