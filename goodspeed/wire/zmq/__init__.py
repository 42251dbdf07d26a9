"""ZeroMQ as the link between nodes: sockets, connections, encryption and authentication (CURVE, ZAP).

Everything above uses `goodspeed.wire.channels`, and could use another link.
"""
