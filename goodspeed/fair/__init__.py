"""The mathematics of fairness: estimates of each client, models of a round's time, and draft lengths.

Numbers in, numbers out; policies are chosen by name.

Loads nothing of: torch, transformers, zmq.
Imports nothing of: asyncio, threading, time, goodspeed.app, goodspeed.serving, goodspeed.engine, goodspeed.exact,
goodspeed.wire.
"""
