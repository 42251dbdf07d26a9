"""Text on its way in and out: prompts read from files, token ids made into text, stop strings found.

Knows nothing about models, sessions or the wire.

Loads nothing of: torch, transformers, zmq.
Imports nothing of: asyncio, threading, time, goodspeed.app, goodspeed.exact, goodspeed.fair, goodspeed.node,
goodspeed.wire.
"""
