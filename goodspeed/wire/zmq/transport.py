"""ZeroMQ: the draft side's DEALER socket and the verify side's ROUTER socket, behind the channels of `channels.py`.

Chooses the sockets' options, and checks their addresses and keys. Exports every name that users of channels need.
"""

from typing import Final

import zmq

from goodspeed.wire.channels import Delivery, DraftChannel, Received, Traffic, VerifyChannel
from goodspeed.wire.codec import MAX_MESSAGE_BYTES
from goodspeed.wire.endpoints import Endpoint, parse_endpoint
from goodspeed.wire.zmq.authentication import ClientKeys, ServerKeys, client_options, server_options
from goodspeed.wire.zmq.router import RouterLink
from goodspeed.wire.zmq.sockets import DealerLink

__all__ = [
    "ClientKeys",
    "Delivery",
    "DraftChannel",
    "Received",
    "ServerKeys",
    "Traffic",
    "VerifyChannel",
    "bind_verify",
    "connect_draft",
]

FRAME_MARGIN_BYTES: Final = 64 << 10
"""Added to ZeroMQ's frame limit, beyond which it cuts the connection: a message slightly too large gets a refusal."""

UNREAD_BYTES: Final = 64 << 20
"""About the most that one peer has waiting in a verify node too busy to read; beyond twice that it is cut off."""

OPTIONS: Final[dict[int, int | bytes]] = {
    zmq.HEARTBEAT_IVL: 500,
    zmq.HEARTBEAT_TIMEOUT: 1500,
    zmq.HEARTBEAT_TTL: 1500,
    zmq.HANDSHAKE_IVL: 10_000,
    zmq.CONNECT_TIMEOUT: 5_000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 2_000,
    zmq.LINGER: 500,  # last verdicts and Close leave, and nothing hangs
    # IMMEDIATE stays off: what is sent before the connection stands waits for it.
}


def bind_verify(
    endpoint: str,
    *,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    trusted_network: bool = False,
    send_queue: int = 1024,
    keys: ServerKeys | None = None,
) -> VerifyChannel:
    """Listens for draft nodes. ConfigError for an endpoint that is not allowed, TransportError for a busy port.

    With `keys` everything is encrypted, only admitted keys connect, and `Received.principal` is the sender's key.
    `send_queue` messages may wait for one peer (besides what its connection buffers), then sending is BUSY.
    """
    address = parse_endpoint(endpoint, trusted_network or keys is not None, "binding")
    options: dict[int, int | bytes] = {
        **OPTIONS,
        zmq.ROUTER_MANDATORY: 1,  # else what cannot be delivered vanishes
        # ROUTER_HANDOVER stays off: a name is of one connection, so what is sent to it never reaches another's; and
        # libzmq 4.3.5 aborts the process when somebody whose name was taken over goes on speaking, and then closes.
        zmq.SNDHWM: send_queue,
        # No limit: libzmq 4.3.5 aborts the process (`!_io_error`) when a connection whose queue is full is reset, at
        # its next heartbeat or PING. Anybody can do that. What peers send is bounded by what they are barred for.
        zmq.RCVHWM: 0,
        zmq.MAXMSGSIZE: max_message_bytes + FRAME_MARGIN_BYTES,
        zmq.BACKLOG: 1024,
        **(server_options(keys.pair) if keys is not None else {}),
    }
    message_bytes = max_message_bytes + 2 * FRAME_MARGIN_BYTES
    link = RouterLink(address, options, keys, message_bytes=message_bytes, unread_bytes=2 * UNREAD_BYTES)
    return VerifyChannel(link, max_message_bytes=max_message_bytes, authenticated=keys is not None)


def connect_draft(
    endpoint: str,
    *,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    trusted_network: bool = False,
    send_queue: int = 256,
    send_timeout_s: float = 3.0,
    keys: ClientKeys | None = None,
    address: Endpoint | None = None,
) -> DraftChannel:
    """Connects to a verify node, now or when it comes up. ConfigError for an endpoint that is not allowed.

    address: what `parse_endpoint` made of the endpoint, so that its name is not looked up again.
    The verify node gives each connection a new name, also when ZeroMQ reconnects.
    """
    address = address or parse_endpoint(endpoint, trusted_network or keys is not None, "connecting")
    options: dict[int, int | bytes] = {
        **OPTIONS,
        **(client_options(keys) if keys is not None else {}),
        zmq.SNDHWM: send_queue,
        zmq.RCVHWM: 1024,
        zmq.MAXMSGSIZE: max_message_bytes + FRAME_MARGIN_BYTES,
    }
    link = DealerLink(address, options, keys)
    return DraftChannel(link, max_message_bytes=max_message_bytes, send_timeout_s=send_timeout_s)
