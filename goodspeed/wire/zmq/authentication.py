"""Authentication in ZeroMQ (CURVE, ZAP): admits keys, and reports why a connection was refused."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from goodspeed.errors import ConfigError
from goodspeed.wire.keys import KeyPair

logger = logging.getLogger("goodspeed.authentication")

ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
ZAP_DOMAIN: Final = b"goodspeed"

FAILURES: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
WATCHED: Final = FAILURES | zmq.EVENT_DISCONNECTED


class ServerKeys(NamedTuple):
    """The verify node's key pair. admits: True for a public key that may connect; called in the event loop."""

    pair: KeyPair
    admits: Callable[[str], bool]


class ClientKeys(NamedTuple):
    """A draft node's key pair, and its verify node's public key."""

    pair: KeyPair
    verify_key: str


def new_pair(name: str | None = None) -> KeyPair:
    """Returns a new key pair from libsodium's random numbers. name: the draft node's; None: a verify node."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode(), name)


def server_options(pair: KeyPair) -> dict[int, int | bytes]:
    """Returns options of a socket that requires CURVE; peers can connect only while a `ZapHandler` answers."""
    return {
        zmq.CURVE_SERVER: 1,
        zmq.CURVE_SECRETKEY: checked_pair(pair).secret_key.encode(),
        zmq.ZAP_DOMAIN: ZAP_DOMAIN,
        zmq.ZAP_ENFORCE_DOMAIN: 1,
    }


def client_options(keys: ClientKeys) -> dict[int, int | bytes]:
    pair = checked_pair(keys.pair)
    return {
        zmq.CURVE_SERVERKEY: keys.verify_key.encode(),
        zmq.CURVE_PUBLICKEY: pair.public_key.encode(),
        zmq.CURVE_SECRETKEY: pair.secret_key.encode(),
    }


def checked_pair(pair: KeyPair) -> KeyPair:
    """Returns the pair; ConfigError if the public key does not match the secret key."""
    with suppress(zmq.ZMQError):  # a secret key that is none has no public key
        if zmq.curve_public(pair.secret_key.encode()) == pair.public_key.encode():
            return pair
    raise ConfigError("--key: its public key does not match its secret key; make a new pair")


class ZapHandler:
    """Answers ZeroMQ's authentication requests (RFC 27) in the running event loop.

    Peers that connect before `open` wait for the answer. pyzmq's AsyncioAuthenticator would refuse them, and after one
    error in its task it would refuse all peers.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", admits: Callable[[str], bool]) -> None:
        self._admits = admits
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ZAP_ENDPOINT)
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Starts answering in the running event loop. A second call does nothing."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(int(self._socket.getsockopt(zmq.FD)), self._answer_all)
            self._answer_all()  # the descriptor is readable only until somebody asks for the socket's state

    def close(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(int(self._socket.getsockopt(zmq.FD)))
        self._loop = None
        self._socket.close()

    def _answer_all(self) -> None:
        while int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._socket.send_multipart(self._answer(self._socket.recv_multipart(zmq.NOBLOCK)))

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """Returns the reply to [version, request id, domain, address, our identity, mechanism, public key]."""
        key = None
        if len(request) == 7 and request[2] == ZAP_DOMAIN and request[5] == b"CURVE" and len(request[6]) == 32:
            key = z85.encode(request[6]).decode()
        if key is not None and self._admitted(key):
            return [b"1.0", request[1], b"200", b"OK", key.encode(), b""]
        address = request[3].decode("ascii", "replace") if len(request) > 3 else "?"
        logger.info("refused a key that is not enrolled, or barred", extra={"key": key, "address": address})
        return [b"1.0", request[1] if len(request) > 1 else b"", b"400", b"this key may not connect", b"", b""]

    def _admitted(self, key: str) -> bool:
        """True if a key may connect. An error in `admits` refuses this key only."""
        try:
            return self._admits(key)
        except Exception:
            logger.exception("cannot check whether a key is enrolled")
            return False


class ConnectionMonitor:
    """Monitors a DEALER's connections: reports broken ones, and why the verify node refused one."""

    def __init__(self, dealer: "zmq.Socket[bytes]", keys: ClientKeys | None) -> None:
        self._dealer = dealer
        self._keys = keys
        self._monitor = dealer.get_monitor_socket(WATCHED)
        self._newest: str | None = None
        self._broke = False

    def failure(self) -> str | None:
        """Returns why the latest attempt failed and what to do; None if none failed since the previous call."""
        self._look()
        newest, self._newest = self._newest, None
        return newest

    def broke(self) -> bool:
        """True if a connection, established or not, ended since the previous call."""
        self._look()
        broke, self._broke = self._broke, False
        return broke

    def _look(self) -> None:
        while (event := self._next()) is not None:
            if event == zmq.EVENT_DISCONNECTED:
                self._broke = True
            else:
                self._newest = self._explain(event) or self._newest

    def close(self) -> None:
        """Stops monitoring; must come before closing the monitored socket."""
        self._dealer.disable_monitor()
        self._monitor.close(linger=0)

    def _next(self) -> int | None:
        try:
            return int(parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))["event"])
        except zmq.Again:
            return None

    def _explain(self, event: int) -> str | None:
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            name = self._keys.pair.name if self._keys is not None else None
            return (
                f"this draft node's key is not enrolled (ZAP 400): copy {name or 'its'}.pub into the verify node's "
                "--enrolled folder, if it is not there"
            )
        if self._keys is None:
            if event != zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                return None  # a connection loss: ZeroMQ reconnects at once
            return "it requires encryption, or is not a verify node: give --key and --verify-key"
        return (
            "the encrypted handshake failed: --verify-key is not that verify node's key, or that node has no --key, "
            "or another program listens there, or the connection broke"
        )
