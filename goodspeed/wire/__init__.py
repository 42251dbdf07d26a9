"""The wire: messages with their bounds, how they become bytes, and links that move them.

Also what both ends need before a message moves: keys, addresses, and how many sockets may be open.
Knows nothing about models, rounds or sessions.

Loads nothing of: torch, transformers, zmq, prometheus_client.
Imports nothing of: goodspeed.app, goodspeed.command, goodspeed.engine, goodspeed.exact, goodspeed.fair,
goodspeed.node.
"""
