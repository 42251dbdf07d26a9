"""The verify node's observers: metrics, the live page, recordings, and status lines about draft nodes.

Nothing here changes what the node does.

Only rooms that say so import: prometheus_client.
Imports nothing of: torch, transformers, zmq.
"""
