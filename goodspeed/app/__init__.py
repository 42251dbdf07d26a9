"""The `goodspeed` command: one model alone, the demo, the chat, and the training of the embedded models.

No node imports it. The libraries of `demo` and `chat` alone are the
extra `app`.

Imports nothing of: zmq.
Only rooms that say so import: httpx2, pydantic, rich.
"""
