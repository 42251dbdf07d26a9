"""ZeroMQ as the link between nodes: sockets, connections, encryption and authentication (CURVE, ZAP).

Nodes see only `goodspeed.wire.channels`, which works over any link.
"""
