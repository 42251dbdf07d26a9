"""For those who look on: metrics, the live page, recordings, and a line for every draft node that comes or goes.

Nothing here changes what the node does. Knows nothing about sockets of the wire or tensors.

Only rooms that say so import: prometheus_client.
Imports nothing of: torch, transformers, zmq.
"""
