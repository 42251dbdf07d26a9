"""Creates channels over ZeroMQ: a DEALER socket for a draft node, a ROUTER socket for the verify node.

Chooses socket options, and checks addresses and keys.
"""

from typing import Final

import zmq

from goodspeed.wire.channels import DraftChannel, VerifyChannel
from goodspeed.wire.codec import MAX_MESSAGE_BYTES
from goodspeed.wire.endpoints import Endpoint, parse_endpoint
from goodspeed.wire.zmq.authentication import ClientKeys, ServerKeys, client_options, server_options
from goodspeed.wire.zmq.router import RouterTransport
from goodspeed.wire.zmq.sockets import DealerTransport

FRAME_MARGIN_BYTES: Final = 64 << 10
"""Added to ZeroMQ's frame limit, beyond which it cuts the connection: a message slightly too large gets a refusal."""

UNREAD_BYTES: Final = 64 << 20
"""About the most unread bytes of one peer at a busy verify node; a peer beyond twice as many is cut."""

DOWN_QUEUE = 1024
"""Most messages that wait for one draft node, in addition to its connection's buffers; beyond: BUSY."""

UP_QUEUE = 256
"""Most messages that wait for the verify node."""

OPTIONS: Final[dict[int, int | bytes]] = {
    zmq.HEARTBEAT_IVL: 500,
    zmq.HEARTBEAT_TIMEOUT: 1500,
    zmq.HEARTBEAT_TTL: 1500,
    zmq.HANDSHAKE_IVL: 10_000,
    zmq.CONNECT_TIMEOUT: 5_000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 2_000,
    zmq.LINGER: 500,  # sends final verdicts and Close, without hanging
    # IMMEDIATE stays off: messages queue until the connection is established.
    # No limit: libzmq 4.3.5 aborts the process (`!_io_error`, `_input_stopped`) if a connection with a full queue is
    # reset, which any peer can cause. Instead, peers that send too much are barred, and windows bound verdicts.
    zmq.RCVHWM: 0,
}


def bind_verify(
    endpoint: str,
    *,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    trusted_network: bool = False,
    keys: ServerKeys | None = None,
) -> VerifyChannel:
    """Listens for draft nodes. ConfigError for an endpoint that is not allowed, TransportError for a busy port.

    keys: encrypts all traffic and admits only enrolled keys; `Received.principal` is then the sender's key.
    """
    address = parse_endpoint(endpoint, trusted_network or keys is not None, "binding")
    options: dict[int, int | bytes] = {
        **OPTIONS,
        zmq.ROUTER_MANDATORY: 1,  # else undeliverable messages vanish silently
        # ROUTER_HANDOVER stays off: a name belongs to one connection, so a message never reaches another peer. Besides,
        # libzmq 4.3.5 aborts the process if a connection whose name was taken over sends again and then closes.
        zmq.SNDHWM: DOWN_QUEUE,
        zmq.MAXMSGSIZE: max_message_bytes + FRAME_MARGIN_BYTES,
        zmq.BACKLOG: 1024,
        **(server_options(keys.pair) if keys is not None else {}),
    }
    message_bytes = max_message_bytes + 2 * FRAME_MARGIN_BYTES
    transport = RouterTransport(address, options, keys, message_bytes=message_bytes, unread_bytes=2 * UNREAD_BYTES)
    return VerifyChannel(transport, max_message_bytes=max_message_bytes, authenticated=keys is not None)


def connect_draft(
    endpoint: str,
    *,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    trusted_network: bool = False,
    keys: ClientKeys | None = None,
    address: Endpoint | None = None,
) -> DraftChannel:
    """Connects to a verify node, now or once it is up. ConfigError for an endpoint that is not allowed.

    address: the endpoint as parsed by `parse_endpoint`, to avoid another name lookup; None: parsed here.
    Each connection gets a new name at the verify node, also when ZeroMQ reconnects.
    """
    address = address or parse_endpoint(endpoint, trusted_network or keys is not None, "connecting")
    options: dict[int, int | bytes] = {
        **OPTIONS,
        **(client_options(keys) if keys is not None else {}),
        zmq.SNDHWM: UP_QUEUE,
        zmq.MAXMSGSIZE: max_message_bytes + FRAME_MARGIN_BYTES,
    }
    transport = DealerTransport(address, options, keys)
    return DraftChannel(transport, max_message_bytes=max_message_bytes)
