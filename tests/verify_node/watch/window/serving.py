"""An application that is served by a thread of the test's own, for a browser to look at."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from goodspeed.serving import web
from tests.listening import listen


@contextmanager
def served(app: ASGIApp, address: str = "127.0.0.1:0") -> Iterator[str]:
    """An application on a thread of its own."""
    loop, listener = asyncio.new_event_loop(), listen(address)
    serving = loop.create_task(web.serve(app, listener))

    async def serve_to_the_end() -> None:
        await asyncio.gather(serving, return_exceptions=True)
        await asyncio.sleep(0)  # connections that were cut off close in the next turn

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve_to_the_end()))
    thread.start()
    try:
        yield web.url(listener)
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
        loop.close()
