"""The wire: bounded messages, their encoding, and the channels and links that move them.

Also the keys, addresses and descriptor limits that both ends need before a message moves.

Loads nothing of: torch, transformers, zmq, prometheus_client.
Imports nothing of: goodspeed.app, goodspeed.serving, goodspeed.engine, goodspeed.exact, goodspeed.fair.
"""
