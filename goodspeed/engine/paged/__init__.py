"""One packed forward pass over paged keys and values: pages, layouts, trees, attention.

Imports nothing of: asyncio, threading, zmq, goodspeed.app, goodspeed.serving, goodspeed.exact, goodspeed.fair,
goodspeed.wire, goodspeed.engine.checkpoints, goodspeed.engine.runner, goodspeed.engine.tokenizing.
"""
