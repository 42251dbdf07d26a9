"""The `goodspeed` command: one model alone, the demo, the chat, and the training of the embedded models.

Knows nothing about either node's code, and no node imports anything of it. What only `demo` and `chat` need is the
extra `goodspeed[app]`.

Imports nothing of: zmq.
"""
