"""The `goodspeed` command: one model alone, the demo, the chat, and the training of the embedded models.

Knows nothing about either node's code, and no node imports it. The libraries of `demo` and `chat` alone are the
extra `app`.

Imports nothing of: zmq.
"""
