"""The embedded models as data: their names, their checkpoints, their model card, and held-out prompts for them.

`training` made them. Knows nothing about how they are loaded.

Loads nothing of: torch, transformers, zmq, numpy.
Imports nothing of: goodspeed, asyncio, threading, time.
"""
