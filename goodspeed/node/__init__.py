"""What both nodes share beside their rules: the model's thread, counts and metrics, API keys, the HTTP server.

Knows nothing about drafts, rounds or sessions.

Only rooms that say so import: prometheus_client.
Imports nothing of: zmq, goodspeed.app.
"""
