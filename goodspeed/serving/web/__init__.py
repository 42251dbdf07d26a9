"""The HTTP server of both nodes: address, API keys, connection and time limits, and response bodies.

An address beyond loopback requires API keys; `/health` and `/ready` are served without a key.
"""
