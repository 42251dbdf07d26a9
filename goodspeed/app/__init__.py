"""The `goodspeed` command: one model alone, the demo, the chat, and the training of the embedded models.

No node imports it. The libraries of `demo` and `chat` alone are the
extra `app`.
"""
