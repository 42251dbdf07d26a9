"""A node that says what it is told to, and keeps what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OWN: dict[str, Any] = {"rounds": 2, "drafted": 4, "accepted": 3, "drafted_by": {}, "accepted_by": {}}
USAGE: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8, "goodspeed": OWN}
FRAME: dict[str, Any] = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "first"}


def chunk(text: str | None = None, reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": reason, "logprobs": None}
    return event({**FRAME, "choices": [{**choice, **more}], "usage": None})


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


LAST = event({**FRAME, "choices": [], "usage": USAGE}) + b"data: [DONE]\n\n"


@dataclass
class Stub:
    """Answers every question with `body`."""

    url: str = ""
    status: int = 200
    body: bytes = (
        b": waiting\n\n" + chunk("") + chunk("Hel") + b": waiting\n\n" + chunk("lo") + chunk(None, "stop") + LAST
    )
    asked: list[dict[str, Any]] = field(default_factory=list)

    def refuse(self, status: int, what: str) -> None:
        error = {"message": what, "type": "t", "param": None, "code": None}
        self.status, self.body = status, json.dumps({"error": error}).encode()


@contextmanager
def serving() -> Iterator[Stub]:
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            stub.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(stub.status)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.end_headers()
            self.wfile.write(stub.body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stub.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
