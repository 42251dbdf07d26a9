"""ZeroMQ as the transport between nodes: sockets, connections, encryption and authentication (CURVE, ZAP).

Nodes use the channels of `goodspeed.wire.channels`, which work over any transport; `opening_channels.py` creates them.
"""
