"""Several large bodies at once: they are read one after another, and not on the event loop."""

import asyncio
import json
import threading
from typing import Any

import pytest
from starlette.requests import Request

from draft_node.http.ask import body
from draft_node.http.schema.chat import CompletionRequest
from draft_node.service.service import body_queue

NUM_BODIES = 12
CONTENT = json.dumps({"prompt": [[12345] * 4095] * 64}).encode()


def asked(user: str) -> Request:
    """A large body, which is there in full."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": CONTENT, "more_body": False}

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "client": (user, 1)}
    return Request(scope, receive)


async def read_all() -> None:
    queue = body_queue()
    requests = (asked(f"10.0.0.{user}") for user in range(NUM_BODIES))
    for each in await asyncio.gather(*(body.read(request, CompletionRequest, queue) for request in requests)):
        assert each.prompt is not None
        assert len(each.prompt) == 64
    queue.close()


def test_one_body_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, read = threading.Lock(), list[tuple[bool, str]]()
    validated = body.validated

    def noted(*args: Any) -> Any:
        is_alone = lock.acquire(blocking=False)
        read.append((is_alone, threading.current_thread().name.partition("_")[0]))
        try:
            return validated(*args)
        finally:
            if is_alone:
                lock.release()

    monkeypatch.setattr(body, "validated", noted)
    asyncio.run(read_all())
    assert read == [(True, "bodies")] * NUM_BODIES
