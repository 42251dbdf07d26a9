"""ZeroMQ as the link between nodes: sockets, connections, encryption and authentication (CURVE, ZAP).

Nodes use the channels of `goodspeed.wire.channels`, which work over any link; `transport.py` creates them over ZeroMQ.
"""
