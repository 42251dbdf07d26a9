"""The address that an HTTP server listens at; one beyond loopback needs API keys."""

import ipaddress
import re
import socket
from dataclasses import dataclass

from goodspeed.errors import ConfigError, TransportError
from goodspeed.serving import api_keys
from goodspeed.serving.api_keys import Keys
from goodspeed.serving.web.connection_limit import check_capacity
from goodspeed.wire.endpoints import cannot_bind

BACKLOG = 1024


@dataclass(frozen=True)
class Address:
    """HOST:PORT with the host resolved; port 0 has the system choose a free one."""

    name: str
    ip: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.ip).is_loopback


def parse_address(text: str) -> Address:
    """Parses HOST:PORT or [IPv6]:PORT. ConfigError for other text, TransportError for an unknown host."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", text)
    if not match or int(match[2]) > 65535:
        raise ConfigError(f"--http {text!r} is not an address; write HOST:PORT, for example 127.0.0.1:8000")
    try:
        found = socket.getaddrinfo(match[1].strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TransportError(
            f"--http: the host name {match[1]} cannot be resolved ({error.strerror}); check it"
        ) from None
    first = min(found, key=lambda entry: entry[0] != socket.AF_INET)  # `localhost` is both; clients expect the old one
    return Address(text, str(first[4][0]).partition("%")[0], int(match[2]))


def check_reach(address: Address, keys: Keys | None) -> None:
    """Raises ConfigError for an address beyond loopback without keys."""
    if keys is None and not address.is_loopback:
        raise ConfigError(
            f"--http {address.name} reaches beyond this machine, and anybody who reaches the port could use it. "
            "Name a file of keys with --api-key FILE, or use a loopback address"
        )


def listen(address: Address, keys: Keys | None) -> socket.socket:
    """Returns a listening socket. ConfigError beyond loopback without keys; TransportError when it cannot be bound."""
    listener = bind(address, keys)
    start_listening(listener)
    return listener


def bind(address: Address, keys: Keys | None) -> socket.socket:
    """Returns a socket that is bound and does not listen yet, so connections are refused; errors as of `listen`."""
    check_reach(address, keys)
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    # The protocol is named because asyncio sends at once (TCP_NODELAY) only where it is.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.ip, address.port))
        # Until it listens the address must not be taken by another process that says SO_REUSEADDR, too.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _taken(address.name, error) from None
    return listener


@dataclass(frozen=True)
class BoundAddress:
    """A socket that is bound to the address of `--http` and does not listen yet, and the keys of `--api-key`."""

    keys: Keys | None
    listener: socket.socket


def bind_http(text: str, key_file: str | None) -> BoundAddress:
    """Binds the address of `--http`. ConfigError for a bad address, bad keys or too few descriptors; else as `bind`."""
    check_capacity()
    keys = Keys(api_keys.read(key_file)) if key_file is not None else None
    return BoundAddress(keys, bind(parse_address(text), keys))


def start_listening(listener: socket.socket) -> None:
    """Listens on a socket from `bind`; TransportError where another process was quicker."""
    name = url(listener).removeprefix("http://")
    try:
        # Connections inherit it, and those that were closed must not keep the address from the node's next start.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _taken(name, error) from None


def _taken(name: str, error: OSError) -> TransportError:
    return cannot_bind(f"--http {name}", error.errno or 0, error.strerror or str(error))


def url(listener: socket.socket) -> str:
    """Returns the URL of a bound socket, with the real port where port 0 was asked for."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
