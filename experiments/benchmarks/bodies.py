"""Times the reading of costly HTTP bodies, which holds the draft node's event loop: CPU time.

Reading JSON holds the interpreter until all is built, and every other user of the node waits. Each body here has up
to 4 MiB of what costs most in its kind: lists, numbers, texts, unknown members. It is read, or refused, as the node
does it (`draft_node.http.body`). Figures are the thread's own CPU time, the best of five, so that other
processes of the machine do not count. Wanted: 50 ms at most for each.

It takes about 5 s; about 3 s with --quick.
"""

import contextlib
import json
import sys
import time
from typing import Any

from pydantic import BaseModel

from draft_node.http.body import MAX_BARE_BYTES, MAX_CONTAINERS, MAX_STRINGS, MAX_VALUES, validated
from draft_node.http.errors import ApiError
from draft_node.http.messages.requests import MessagesRequest
from draft_node.http.requests import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from experiments.harness import benchmark

SIZE = 4 << 20
WANTED_MS = 50.0


def repeated(element: bytes, number: int | None = None, name: str = "prompt") -> bytes:
    """A body with a list of so many of these, as many as 4 MiB can have unless told."""
    number = (SIZE - 100) // (len(element) + 1) if number is None else number
    return b'{"' + name.encode() + b'":[' + b",".join([element] * number) + b"]}"


ONE_PART = b'{"type":"text","text":""}'
MANY_PARTS = b'{"role":"user","content":[' + b",".join([ONE_PART] * 1000) + b"]}"

BODIES: dict[str, tuple[type[BaseModel], bytes]] = {
    "small lists": (CompletionRequest, repeated(b"[1]")),
    "empty lists, unknown": (CompletionRequest, repeated(b"[]", name="x")),
    "as many lists as may be": (CompletionRequest, repeated(b"[1]", MAX_CONTAINERS - 2)),
    "as many objects as may be": (ChatRequest, repeated(b'{"a":1}', MAX_CONTAINERS - 2, name="messages")),
    "numbers": (CompletionRequest, repeated(b"1")),
    "as many ids as may be": (CompletionRequest, repeated(b"151643", MAX_VALUES)),
    "64 prompts of 4,095 ids": (CompletionRequest, repeated(b"[" + b",".join([b"12345"] * 4095) + b"]", 64)),
    "large numbers, unknown": (CompletionRequest, repeated(b"9" * 20, MAX_BARE_BYTES // 21 - 1, name="x")),
    "19 digits": (CompletionRequest, repeated(b"9" * 19, MAX_BARE_BYTES // 20 - 1, name="x")),
    "ids and spaces": (CompletionRequest, repeated(b" " * 8 + b"151643", MAX_VALUES)),
    "spaces": (CompletionRequest, repeated(b" ", 1, name="x") + b" " * (SIZE - 100)),
    "as many floats as may be": (CompletionRequest, repeated(b"1.5e100", MAX_VALUES)),
    "small texts": (CompletionRequest, repeated(b'""')),
    "unknown members": (CompletionRequest, json.dumps({f"x{i}": i for i in range(MAX_STRINGS)}).encode()),
    "one text": (CompletionRequest, b'{"prompt":"' + b"a" * (SIZE - 20) + b'"}'),
    "escapes": (CompletionRequest, b'{"prompt":"' + b"\\u00e9" * (SIZE // 6 - 20) + b'"}'),
    "quotes": (CompletionRequest, b'{"prompt":"' + b'\\"' * (SIZE // 2 - 20) + b'"}'),
    "64 texts": (CompletionRequest, repeated(b'"' + b"a" * (SIZE // 64 - 10) + b'"', 64)),
    "parts": (ChatRequest, repeated(ONE_PART, name="messages")),
    "as many parts as may be": (ChatRequest, repeated(MANY_PARTS, 4, name="messages")),
    "as many blocks as may be": (MessagesRequest, repeated(MANY_PARTS, 4, name="messages")),
    "deep": (CompletionRequest, b'{"prompt":' + b"[" * (SIZE - 20)),
    "ids to decode": (DetokenizeRequest, repeated(b"1", MAX_VALUES, name="tokens")),
    "messages to encode": (TokenizeRequest, repeated(MANY_PARTS, 4, name="messages")),
}


def cpu_s(kind: str) -> float:
    """Seconds of this thread in which the body is read, or refused."""
    schema, body = BODIES[kind]
    started = time.thread_time()
    with contextlib.suppress(ApiError):
        validated(schema, body)
    return time.thread_time() - started


def main() -> int:
    options = benchmark.parser("bodies", __doc__, "each body once").parse_args()
    found: dict[str, Any] = {}
    for kind, (_, body) in BODIES.items():
        found[kind] = 1e3 * min(cpu_s(kind) for _ in range(1 if options.quick else 5))
        benchmark.say(options, f"    {found[kind]:7.2f} ms  {kind} ({len(body):,} bytes)")
    benchmark.say(options, f"longest {max(found.values()):.1f} ms; wanted: {WANTED_MS:g} ms at most")
    benchmark.report(options, {"benchmark": "bodies", "wanted_ms": WANTED_MS, "ms": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
