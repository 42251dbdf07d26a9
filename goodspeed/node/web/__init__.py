"""What the HTTP faces of both nodes share: where they listen, who may use them, how errors look, how they run.

Beyond loopback a face is served only with API keys; `/health` and `/ready` are open to everybody. Knows nothing about
what is served: an ASGI application goes in.
"""

from goodspeed.node.web.address import (
    Address,
    Port,
    bind,
    check_reach,
    listen,
    parse_address,
    start_listening,
    take_port,
    url,
)
from goodspeed.node.web.capacity import MAX_CONNECTIONS
from goodspeed.node.web.guards import OPEN_PATHS, Counted, KeyCheck, LocalHost, error_body, user_of
from goodspeed.node.web.keys import Keys, read_keys
from goodspeed.node.web.server import serve

__all__ = [
    "MAX_CONNECTIONS",
    "OPEN_PATHS",
    "Address",
    "Counted",
    "KeyCheck",
    "Keys",
    "LocalHost",
    "Port",
    "bind",
    "check_reach",
    "error_body",
    "listen",
    "parse_address",
    "read_keys",
    "serve",
    "start_listening",
    "take_port",
    "url",
    "user_of",
]
