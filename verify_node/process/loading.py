"""Answers draft nodes and HTTP requests while the model is loaded: this node lives, and is not ready yet."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from goodspeed.serving.loop import Failures
from goodspeed.wire.channels import VerifyChannel
from goodspeed.wire.handshake import Hello
from goodspeed.wire.messages import Refusal
from goodspeed.wire.zmq.opening_channels import bind_verify
from verify_node.config import VerifyConfig
from verify_node.process.preflight import Found

if TYPE_CHECKING:  # HTTP is imported only where it is served
    from goodspeed.serving import web

logger = logging.getLogger("goodspeed.verify")

REFUSAL = Refusal("loading", "this verify node is loading its model", "wait, and send Hello again")

MAX_MESSAGE_BYTES = 16 << 10
"""More than any Hello has."""

PAUSE_S = 0.02
"""Pause between two looks at what arrived: whatever is sent, loading goes on."""


@contextmanager
def answering(config: VerifyConfig, found: Found) -> Iterator[Callable[[], str]]:
    """Serves on a thread of its own, inside the context or until the function that it yields is called.

    That function frees the address for draft nodes, and returns it with its actual port; HTTP requests wait from then
    on. Draft nodes that say Hello are refused as `loading`, and other messages are dropped. HTTP requests get 503, but
    `/health` 200. Raises TransportError if it cannot bind the address for draft nodes, or listen for HTTP.
    """
    channel = bind_verify(
        config.bind,
        max_message_bytes=MAX_MESSAGE_BYTES,
        trusted_network=config.trusted_network,
        keys=found.keys,
    )
    endpoint = channel.endpoint
    try:
        if found.http is not None:
            from goodspeed.serving import web

            web.start_listening(found.http.listener)
    except BaseException:
        channel.close()
        raise
    loop, is_over = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(_serve(channel, found.http, is_over)), daemon=True)

    def end() -> str:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        return endpoint

    thread.start()
    try:
        yield end
    finally:
        end()
        loop.close()


async def _serve(channel: VerifyChannel, http: "web.BoundAddress | None", is_over: asyncio.Event) -> None:
    serving = [asyncio.create_task(_answer(channel))]
    if http is not None:
        serving.append(asyncio.create_task(_serve_http(http)))
    try:
        await is_over.wait()
    finally:
        for task in serving:
            task.cancel()
        for result in await asyncio.gather(*serving, return_exceptions=True):
            if isinstance(result, Exception):
                logger.error("nobody was told that the model was being loaded", exc_info=result)
        channel.close()


async def _answer(channel: VerifyChannel) -> None:
    """Refuses draft nodes, each once in PAUSE_S."""
    failures = Failures(logger, "an answer while loading")
    while True:
        async with failures.survived():
            await channel.readable()
            for peer in {one.peer for one in channel.receive_ready() if isinstance(one.message, Hello)}:
                channel.send(peer, REFUSAL)
        await asyncio.sleep(PAUSE_S)


async def _serve_http(bound: "web.BoundAddress") -> None:
    from goodspeed.serving import web
    from verify_node.watch.app import create_loading_app, guarded

    app = guarded(create_loading_app(time.monotonic), bound.keys)
    await web.serve(app, bound.listener.dup())  # the server closes its socket; the page needs the other
