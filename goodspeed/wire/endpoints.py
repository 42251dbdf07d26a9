"""Parses and resolves addresses of the wire, tcp://HOST:PORT. Beyond loopback they need keys or a trusted network."""

import errno
import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple

from goodspeed.errors import ConfigError, TransportError

MAKE_KEYS: Final = {
    "binding": "Make keys with `goodspeed keygen verify` and `goodspeed keygen draft NAME`, and give --key FILE "
    "--enrolled FOLDER.",
    "connecting": "Make a key with `goodspeed keygen draft NAME`, have NAME.pub enrolled at the verify node, and give "
    "--key NAME.key --verify-key verify.pub.",
}
"""Advice in the error for an address beyond loopback."""

DOING: Final = {"binding": "listening at", "connecting": "connecting to"}


class Endpoint(NamedTuple):
    """The address that a socket binds or connects to."""

    endpoint: str
    ipv6: bool


def parse_endpoint(endpoint: str, trusted_network: bool, doing: str) -> Endpoint:
    """Parses tcp://HOST:PORT into ZeroMQ's form. ConfigError for other text, or beyond loopback if not trusted."""
    match = re.fullmatch(r"tcp://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+|\*):(\d{1,5}|\*)", endpoint)
    port = 0 if not match or match[2] == "*" else int(match[2])
    if not match or port > 65535 or (doing == "connecting" and match[1] == "*"):
        raise ConfigError(f"{endpoint!r} is not an endpoint; write tcp://HOST:PORT, for example tcp://127.0.0.1:5555")
    if doing == "connecting" and port == 0:
        raise ConfigError(f"{endpoint}: a port to connect to is 1 to 65535")
    host = match[1].strip("[]")
    addresses = ["::"] if host == "*" else resolve(host)
    if not trusted_network and not _are_loopback(addresses):
        raise ConfigError(
            f"{DOING[doing]} {endpoint} needs keys, a loopback address, or --trusted-network (if only machines you "
            f"trust are on that network). {MAKE_KEYS[doing]} The address is beyond this machine: without keys anybody "
            "on the way can read the text, and anybody who reaches the port can use it"
        )
    # IPv6 only where needed: with it, ZeroMQ takes the first address even if the peer listens on IPv4 alone.
    return Endpoint(f"tcp://{match[1]}:{port}", ipv6=all(":" in address for address in addresses))


def is_loopback(endpoint: str) -> bool:
    """True if only this machine reaches tcp://HOST:PORT; TransportError for an unknown host."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    return host != "*" and _are_loopback(resolve(host))


def _are_loopback(addresses: Sequence[str]) -> bool:
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def cannot_bind(endpoint: str, number: int, why: str) -> TransportError:
    """Returns the error for an address that cannot be bound. number, why: the system's error number and message."""
    if number == errno.EADDRINUSE:
        what_to_do = "another program listens there; stop it, or choose another port (0 takes any free one)"
    elif number == errno.EACCES:
        what_to_do = "choose a port above 1023"
    else:
        what_to_do = "choose an address of this machine"
    return TransportError(f"cannot bind {endpoint}: {why}; {what_to_do}")


def resolve(host: str) -> list[str]:
    """Returns the IP addresses of a host; TransportError for an unknown one."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a name with an empty or too long part is a UnicodeError
        why = getattr(error, "strerror", None) or "it is no host name"
        raise TransportError(f"the host name {host!r} cannot be resolved ({why}); check it") from None
    return [str(entry[4][0]).partition("%")[0] for entry in found]
