"""Asks HTTP servers on loopback: JSON there, JSON back."""

import http.client
import json
from typing import Any

HOST = "127.0.0.1"


def post(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to a request; RuntimeError unless it is one with status 200."""
    connection = http.client.HTTPConnection(HOST, port)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {text[:500].decode(errors='replace')}")
    found: dict[str, Any] = json.loads(text)
    return found
