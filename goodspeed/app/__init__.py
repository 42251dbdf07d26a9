"""The `goodspeed` command: one model alone, the demo, the chat, and the training of the embedded models.

No node imports anything of it, and what only `demo` and `chat` need is the extra `goodspeed[app]`.

Imports nothing of: zmq.
"""
