"""The common parts of all commands: settings and options, exit statuses, logs, events and status lines.

Knows nothing about what a command is for.

Loads nothing of: torch, transformers, zmq.
Imports nothing of: goodspeed.app, goodspeed.engine, goodspeed.exact, goodspeed.fair, goodspeed.wire.
"""
