"""The parts of both daemons that are not rules: model thread, counts, metrics, recordings, API keys, the HTTP server.

Only rooms that say so import: prometheus_client.
Imports nothing of: zmq, goodspeed.app.
"""
