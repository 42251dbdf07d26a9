"""The listening address of an HTTP server; beyond loopback it requires API keys."""

import ipaddress
import re
import socket
from dataclasses import dataclass

from goodspeed.errors import ConfigError, TransportError
from goodspeed.serving.api_keys import Keys
from goodspeed.serving.options import ADDRESS
from goodspeed.serving.web.connection_limit import check_capacity
from goodspeed.wire.endpoints import cannot_bind, resolve

BACKLOG = 1024


def parse_address(text: str) -> tuple[str, int]:
    """Returns IP address and port of HOST:PORT or [IPv6]:PORT. Port 0: the system chooses a free port.

    ConfigError for other text, TransportError for an unknown host.
    """
    match = re.fullmatch(ADDRESS, text)
    if not match or int(match[2]) > 65535:
        raise ConfigError(f"--http {text!r} is not an address; write HOST:PORT, for example 127.0.0.1:8000")
    try:
        addresses = resolve(match[1].strip("[]"))
    except TransportError as error:
        raise TransportError(f"--http: {error}") from None
    return min(addresses, key=lambda address: ":" in address), int(match[2])  # `localhost` is both; clients expect IPv4


def bind(text: str, keys: Keys | None) -> socket.socket:
    """Returns a socket bound to HOST:PORT that does not listen yet, so connections are refused.

    ConfigError for a bad address, or one beyond loopback without keys; TransportError if it cannot be bound.
    """
    ip, port = parse_address(text)
    if keys is None and not ipaddress.ip_address(ip).is_loopback:
        raise ConfigError(
            f"--http {text} reaches beyond this machine, and anybody who reaches the port could use it. "
            "Name a file of keys with --api-key FILE, or use a loopback address"
        )
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    # The protocol is explicit because asyncio sets TCP_NODELAY only then.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ip, port))
        # Until it listens, no other process with SO_REUSEADDR may take the address.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _taken(text, error) from None
    return listener


@dataclass(frozen=True)
class BoundAddress:
    """The bound socket of `--http`, not yet listening, and the keys of `--api-key`, which follow their file."""

    keys: Keys | None
    listener: socket.socket


def bind_http(text: str, key_file: str | None) -> BoundAddress:
    """Binds the address of `--http`. ConfigError for bad keys or few descriptors; else as `bind`."""
    check_capacity()
    keys = Keys.of_file(key_file) if key_file is not None else None
    return BoundAddress(keys, bind(text, keys))


def start_listening(listener: socket.socket) -> None:
    """Listens on a socket from `bind`; TransportError if another process took the address first."""
    name = url(listener).removeprefix("http://")
    try:
        # Connections inherit the option; closed ones must not block the address at the node's next start.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _taken(name, error) from None


def _taken(name: str, error: OSError) -> TransportError:
    return cannot_bind(f"--http {name}", error.errno or 0, error.strerror or str(error))


def url(listener: socket.socket) -> str:
    """Returns a bound socket's URL, with the actual port."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
