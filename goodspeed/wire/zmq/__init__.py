"""ZeroMQ as a link between nodes: sockets, connections, and who is let in (CURVE, ZAP).

Everything above talks to `goodspeed.wire.channels` and could use another link.

Only rooms that say so import: zmq.
Imports nothing of: torch, transformers.
"""
