"""Encodes and decodes messages as typed MessagePack. Sizes are checked before any work.

The first fields of `Hello`, `Welcome` and `Refusal` keep their positions in every protocol version, so a peer of
another version gets a clear error. Nesting depth needs no check: every field is typed, so bytes cannot nest deeper than
the message types.
"""

from typing import Any, Final, TypeVar

import msgspec

from goodspeed.errors import MalformedMessage, MessageTooLarge, ProtocolError, WrongVersion
from goodspeed.untrusted import sanitize
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS, MAX_LOGPROBS
from goodspeed.wire.handshake import VERSION, Defaults, Heartbeat, Welcome
from goodspeed.wire.messages import DownMessage, Refusal, RefusalCode, UpMessage

MAX_MESSAGE_BYTES: Final = 64 << 20
"""Largest message of any configuration; a larger dense proposal must have fewer tokens."""

FIXED_BYTES: Final = (48 << 10) + 4 * MAX_CONSTRAINT_CHARS
"""Bytes reserved in a message for everything but token ids, logprobs and proposals: a constraint of 4-byte characters,
the most biases (15 KiB), and the other fields, of which the longest Refusal takes half."""

TOKEN_BYTES: Final = 5  # MessagePack's longest encoding of an id below 2^32
FLOAT_BYTES: Final = 9
LOGPROBS_BYTES: Final = 7 + FLOAT_BYTES + MAX_LOGPROBS * (TOKEN_BYTES + FLOAT_BYTES)  # per token; 7 for 3 array headers
DENSE_BYTES: Final = 4  # per entry of a dense proposal in fp32
LATTICE_BYTES: Final = 256 * (4 + 2)  # per drafted token of a lattice proposal: most ids and weights
POSITION_BYTES: Final = 64  # per drafted token: a proposal's overhead

_M = TypeVar("_M")
_Errors: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class _AnyHello(msgspec.Struct, array_like=True, tag="hello"):
    version: int


class _AnyWelcome(msgspec.Struct, array_like=True, tag="welcome"):
    version: int


class _AnyRefusal(msgspec.Struct, array_like=True, tag="refusal"):
    code: str
    what: str


_encoder = msgspec.msgpack.Encoder()
_up: msgspec.msgpack.Decoder[UpMessage] = msgspec.msgpack.Decoder(UpMessage)
_down: msgspec.msgpack.Decoder[DownMessage] = msgspec.msgpack.Decoder(DownMessage)
_foreign = msgspec.msgpack.Decoder(_AnyHello | _AnyWelcome | _AnyRefusal)


def max_message_bytes(context_len: int, max_length: int, vocab_size: int) -> int:
    """Returns the message limit in bytes, for both directions, that a model and its longest draft need.

    The largest messages are a `Verdict` with a full context and every token's logprobs, and a `Draft` of the ratio rule
    with `max_length` distributions, dense in fp32 or lattices.
    """
    context = context_len * (TOKEN_BYTES + LOGPROBS_BYTES)
    position = TOKEN_BYTES + POSITION_BYTES + max(vocab_size * DENSE_BYTES, LATTICE_BYTES)
    return min(FIXED_BYTES + max(context, max_length * position), MAX_MESSAGE_BYTES)


def encode(message: UpMessage | DownMessage, max_bytes: int) -> bytes:
    """Encodes a message, omitting trailing fields at their defaults; MessageTooLarge above `max_bytes`."""
    fields = _without_trailing_defaults(message)
    if isinstance(message, Welcome):
        fields = tuple(_without_trailing_defaults(field) if isinstance(field, Defaults) else field for field in fields)
    data = _encoder.encode((message.__struct_config__.tag, *fields))
    _check_size(len(data), max_bytes)
    return data


def _without_trailing_defaults(message: msgspec.Struct) -> tuple[Any, ...]:
    fields = msgspec.structs.astuple(message)
    defaults = message.__struct_defaults__
    num_fields, num_required = len(fields), len(fields) - len(defaults)
    while num_fields > num_required and fields[num_fields - 1] == defaults[num_fields - 1 - num_required]:
        num_fields -= 1
    return fields[:num_fields]


def decode_up(data: bytes, max_bytes: int) -> UpMessage:
    """Decodes a draft node's message; raises only MessageTooLarge, MalformedMessage or WrongVersion.

    A Hello of another version passes if it can be decoded: `check_hello` refuses it, and can name the draft node.
    """
    message = _decode(_up, data, max_bytes)
    if isinstance(message, Heartbeat) and message.siblings is not None:
        raise MalformedMessage("a draft node must not report replicas")
    return message


def decode_down(data: bytes, max_bytes: int) -> DownMessage:
    """Decodes the verify node's message; raises only MessageTooLarge, MalformedMessage or WrongVersion."""
    message = _decode(_down, data, max_bytes)
    if isinstance(message, Welcome):
        _check_version(message.version, "verify node")
    return message


def refusal_for(error: ProtocolError) -> Refusal:
    """Returns the Refusal to send to a peer whose bytes caused this error."""
    code: RefusalCode = "malformed"
    what_to_do = "send messages of this protocol only"
    if isinstance(error, MessageTooLarge):
        code, what_to_do = "too_large", "keep within the max_message_bytes of Welcome"
    elif isinstance(error, WrongVersion):
        code, what_to_do = "version", "run the same version of GoodSpeed on both sides"
    return Refusal(code=code, what=str(error)[:2048], what_to_do=what_to_do)


def _decode(decoder: "msgspec.msgpack.Decoder[_M]", data: bytes, max_bytes: int) -> _M:
    _check_size(len(data), max_bytes)
    try:
        return decoder.decode(data)
    except _Errors as error:
        _check_foreign(data)
        raise MalformedMessage(sanitize(str(error))) from None


def _check_size(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise MessageTooLarge(f"a message of {num_bytes} bytes exceeds the limit of {max_bytes}")


def _check_foreign(data: bytes) -> None:
    """Raises WrongVersion if these malformed bytes are a handshake of another protocol version."""
    try:
        message = _foreign.decode(data)
    except _Errors:
        return
    if isinstance(message, _AnyRefusal):
        if message.code == "version":
            raise WrongVersion(f"the verify node refused: {sanitize(message.what)}")
    else:
        _check_version(message.version, "draft node" if isinstance(message, _AnyHello) else "verify node")


def _check_version(version: int, peer: str) -> None:
    if version != VERSION:
        raise WrongVersion(f"the {peer} speaks version {sanitize(str(version))} of the protocol, not {VERSION}")
