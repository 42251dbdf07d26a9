"""A listening socket for an HTTP server."""

import socket

from goodspeed.serving.api_keys import Keys
from goodspeed.serving.web.address import bind, start_listening


def listen(address: str = "127.0.0.1:0", keys: Keys | None = None) -> socket.socket:
    """Returns a socket that listens at HOST:PORT."""
    listener = bind(address, keys)
    start_listening(listener)
    return listener
