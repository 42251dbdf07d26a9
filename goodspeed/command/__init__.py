"""What every command does alike: settings and options, exit statuses, and what it says to whoever started it.

Knows nothing about what a command is for.

Loads nothing of: torch, transformers, zmq.
Imports nothing of: goodspeed.app, goodspeed.engine, goodspeed.exact, goodspeed.fair, goodspeed.wire.
"""
