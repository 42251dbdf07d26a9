"""ZeroMQ as a link between nodes: sockets, connections, and who is let in (CURVE, ZAP).

Knows nothing about what the messages mean. Everything above talks to `goodspeed.wire.channels`, and could use another
link.

Only rooms that say so import: zmq.
Imports nothing of: torch, transformers.
"""
