"""The HTTP server of both nodes: address, API keys, connection and time limits, and response bodies.

An address beyond loopback requires API keys; `/health` and `/ready` are served without a key.
"""

from goodspeed.serving.api_keys import Keys
from goodspeed.serving.web.address import BoundAddress, bind, bind_http, start_listening, url
from goodspeed.serving.web.connection_limit import MAX_CONNECTIONS
from goodspeed.serving.web.errors import error_answer, error_body
from goodspeed.serving.web.guards import OPEN_PATHS, Counted, KeyCheck, LocalHost, user_of
from goodspeed.serving.web.server import serve

__all__ = [
    "MAX_CONNECTIONS",
    "OPEN_PATHS",
    "BoundAddress",
    "Counted",
    "KeyCheck",
    "Keys",
    "LocalHost",
    "bind",
    "bind_http",
    "error_answer",
    "error_body",
    "serve",
    "start_listening",
    "url",
    "user_of",
]
