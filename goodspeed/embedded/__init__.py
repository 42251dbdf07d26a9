"""The embedded models as data: their names, their checkpoints, their model card, and held-out prompts for them.

`training` made them.

Loads nothing of: torch, transformers, zmq, numpy.
Imports nothing of: goodspeed, asyncio, threading, time.
"""
