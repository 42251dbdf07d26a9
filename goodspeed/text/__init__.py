"""Text input and output: reads prompts from files, decodes token ids piece by piece, finds stop strings.

Knows nothing about models' weights, sessions or the wire.

Loads nothing of: torch, transformers, zmq.
Imports nothing of: asyncio, threading, time, goodspeed.app, goodspeed.exact, goodspeed.fair, goodspeed.node,
goodspeed.wire.
"""
