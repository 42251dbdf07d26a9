"""The common parts of all commands: settings and options, exit statuses, logs, events and status lines.

Loads nothing of: torch, transformers, zmq.
Imports nothing of: goodspeed.app, goodspeed.engine, goodspeed.exact, goodspeed.fair, goodspeed.wire.
"""
