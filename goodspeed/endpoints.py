"""Addresses of the wire, tcp://HOST:PORT: read, resolved, and kept on this machine unless somebody vouches for more.

Knows nothing about sockets of ZeroMQ, or what goes over them.
"""

import ipaddress
import re
import socket
from typing import Final, NamedTuple

from goodspeed.errors import ConfigError

MAKE_KEYS: Final = {
    "binding": "Make keys with `goodspeed keygen verify` and `goodspeed keygen draft NAME`, and give --key FILE "
    "--enrolled FOLDER.",
    "connecting": "Make a key with `goodspeed keygen draft NAME`, have NAME.pub enrolled at the verify node, and give "
    "--key NAME.key --verify-key verify.pub.",
}
"""What to do about an address beyond loopback."""


class Endpoint(NamedTuple):
    """Where a socket is bound, or connects to."""

    endpoint: str
    port: int
    ipv6: bool


def parse_endpoint(endpoint: str, trusted_network: bool, doing: str) -> Endpoint:
    """tcp://HOST:PORT made fit for ZeroMQ; ConfigError when it is not that, or beyond loopback without trust."""
    match = re.fullmatch(r"tcp://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+|\*):(\d{1,5}|\*)", endpoint)
    port = 0 if not match or match[2] == "*" else int(match[2])
    if not match or port > 65535 or (doing == "connecting" and match[1] == "*"):
        raise ConfigError(f"{endpoint!r} is not an endpoint; write tcp://HOST:PORT, for example tcp://127.0.0.1:5555")
    host = match[1].strip("[]")
    addresses = ["::"] if host == "*" else _resolve(host)
    if not trusted_network and not all(ipaddress.ip_address(address).is_loopback for address in addresses):
        raise ConfigError(
            f"{doing} at {endpoint} reaches beyond this machine, in clear and without keys: anybody on the way can "
            f"read the text, and anybody who reaches the port can use it. {MAKE_KEYS[doing]} "
            "Or use a loopback address, or say --trusted-network if only machines you trust are on that network"
        )
    # IPv6 only where it is needed: with it on, ZeroMQ takes the first address, though the peer may listen on IPv4.
    return Endpoint(f"tcp://{match[1]}:{port}", port, ipv6=all(":" in address for address in addresses))


def _resolve(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"the host name {host!r} cannot be resolved ({error.strerror}); check it") from None
    return [str(entry[4][0]).partition("%")[0] for entry in found]
