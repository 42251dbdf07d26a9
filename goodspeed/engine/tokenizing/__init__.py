"""Text to token ids and back, and what else of a checkpoint belongs to its texts: chat template, sampling defaults.

Loads nothing of: torch.
Imports nothing of: asyncio, threading, zmq, goodspeed.app, goodspeed.serving, goodspeed.exact, goodspeed.fair,
goodspeed.wire, goodspeed.engine.paged, goodspeed.engine.runner.
"""
