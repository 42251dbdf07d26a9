"""The engine of both nodes: checkpoints, a paged pool of keys and values, one packed forward pass over many sessions.

Imports nothing of: asyncio, zmq, goodspeed.app, goodspeed.serving, goodspeed.exact, goodspeed.fair, goodspeed.wire.
"""
