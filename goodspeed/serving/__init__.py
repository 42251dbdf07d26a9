"""The parts of all commands and both daemons that are not rules: settings and options, events, metrics, recordings.

Only rooms that say so import: prometheus_client.
Imports nothing of: zmq, goodspeed.app.
"""
