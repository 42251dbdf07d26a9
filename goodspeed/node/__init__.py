"""The parts of both daemons that are not rules: model thread, counts, metrics, recordings, API keys, the HTTP server.

Knows nothing about either node's state.

Only rooms that say so import: prometheus_client.
Imports nothing of: zmq, goodspeed.app.
"""
