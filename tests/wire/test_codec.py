"""Bytes to messages and back: exact for all that is ours, a named error for everything else."""

import resource
from typing import Any

import msgspec
import pytest
from hypothesis import given

from goodspeed.errors import MalformedMessage, MessageTooLarge, ProtocolError, WrongVersion
from goodspeed.wire.codec import MAX_MESSAGE_BYTES, decode_down, decode_up, encode, max_message_bytes, refusal_for
from goodspeed.wire.fields import MAX_DRAFT
from goodspeed.wire.generation import Sampling
from goodspeed.wire.handshake import VERSION, Heartbeat, Hello
from goodspeed.wire.messages import Ack, DownMessage, Draft, OpenSession, Refusal, TokenLogprobs, UpMessage, Verdict
from tests.fuzz.damage import HEADERS
from tests.strategies import DOWN, UP, messages

LIMIT = 1 << 20
SESSION = bytes(range(16))
BOOT = b"bootboot"
HELLO = Hello(version=VERSION, name="edge-1", boot_id=BOOT, tokenizer="t")
DRAFT = Draft(session_id=SESSION, epoch=1, base_len=3, tokens=(4, 5), proposal=b"\x00\x01")


def refused(decode: Any, data: bytes, limit: int = LIMIT) -> bool:
    """True if these bytes are refused; anything but a ProtocolError fails the test."""
    try:
        decode(data, limit)
    except ProtocolError as caught:
        error = caught
    else:
        return False
    assert len(str(error)) < 300
    assert str(error).isprintable()
    assert refusal_for(error).code in {"malformed", "too_large", "version"}
    decode_down(encode(refusal_for(error), LIMIT), LIMIT)
    return True


@given(messages(UP))
def test_up_messages_come_back_as_they_were(message: UpMessage) -> None:
    if isinstance(message, Heartbeat) and message.siblings is not None:
        with pytest.raises(MalformedMessage, match="a draft node must not report replicas"):
            decode_up(encode(message, LIMIT), LIMIT)
    else:
        assert decode_up(encode(message, LIMIT), LIMIT) == message


@given(messages(DOWN))
def test_down_messages_come_back_as_they_were(message: DownMessage) -> None:
    assert decode_down(encode(message, LIMIT), LIMIT) == message


def test_directions_are_kept_apart_and_more_bytes_after_a_message_are_refused() -> None:
    verdict = Verdict(SESSION, 1, 3, (4,), 1, 1, 5)
    assert refused(decode_up, encode(verdict, LIMIT))
    assert refused(decode_down, encode(DRAFT, LIMIT))
    assert refused(decode_up, encode(DRAFT, LIMIT) + b"\x00")
    assert refused(decode_up, encode(HELLO, LIMIT) * 2)


def in_every_field(hostile: bytes) -> list[bytes]:
    """A Draft and an OpenSession cut off at each field, with these bytes from there on; and the bytes alone."""
    opened = OpenSession(SESSION, 1, (1,), (2,), Sampling(), 9)
    found = [hostile]
    for message in (DRAFT, HELLO, opened):
        values = msgspec.msgpack.decode(msgspec.msgpack.encode(message))  # with trailing defaults, too
        for place in range(len(values)):
            head = bytes([0x90 | len(values)]) if len(values) < 16 else b"\xdc\x00" + bytes([len(values)])
            found.append(head + b"".join(msgspec.msgpack.encode(value) for value in values[:place]) + hostile)
    return found


@pytest.mark.parametrize("kind", HEADERS)
def test_gigabyte_headers_cost_nothing(kind: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wires = in_every_field(HEADERS[kind])
    assert all(refused(decode_up, wire) and refused(decode_down, wire) for wire in wires)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10  # KiB


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01"])
def test_deep_nesting_is_refused_also_behind_a_foreign_handshake(opening: bytes) -> None:
    for wire in in_every_field(opening * 50_000):
        assert refused(decode_up, wire)
        assert refused(decode_down, wire)
    for end in (b"", b"\xc0"):
        assert refused(decode_up, b"\x93\xa5hello\x02" + opening * 50_000 + end)


@pytest.mark.parametrize("text", [b"\xa1\xff", b"\xa3\xed\xa0\x80", b"\xa4\xf0\x9f\x98\xff", b"\xa1\x00"])
def test_text_that_is_no_text_is_refused(text: bytes) -> None:
    for wire in in_every_field(text):
        assert refused(decode_up, wire)
    assert refused(decode_up, b"\x91" + text)
    assert refused(decode_up, encode(HELLO, LIMIT).replace(b"\xa6edge-1", text))


def test_malformed_messages_say_where_and_hostile_words_are_not_repeated_at_length() -> None:
    values = msgspec.msgpack.decode(encode(DRAFT, LIMIT))
    values[3] = "three"
    with pytest.raises(MalformedMessage, match=r"Expected `int`, got `str` - at `\$\[3\]`"):
        decode_up(msgspec.msgpack.encode(values), LIMIT)
    with pytest.raises(MalformedMessage) as caught:
        decode_up(msgspec.msgpack.encode(["<script>\x1b[31m" + "evil" * 5000]), LIMIT)
    assert "evil" not in str(caught.value)
    assert len(str(caught.value)) <= 200


def test_size_is_limited_on_both_sides() -> None:
    wire = encode(DRAFT, LIMIT)
    assert encode(DRAFT, len(wire)) == wire
    assert decode_up(wire, len(wire)) == DRAFT
    with pytest.raises(MessageTooLarge, match=f"{len(wire)} bytes exceeds the limit of {len(wire) - 1}"):
        encode(DRAFT, len(wire) - 1)
    with pytest.raises(MessageTooLarge):
        decode_up(wire, len(wire) - 1)
    with pytest.raises(MessageTooLarge):
        decode_down(b"\x91" * 100, 99)


@pytest.mark.parametrize(
    ("context_len", "max_length", "vocab_size"), [(2048, 24, 4096), (40_960, 16, 151_936), (1, 1, 1)]
)
def test_the_limit_admits_the_largest_messages(context_len: int, max_length: int, vocab_size: int) -> None:
    limit = max_message_bytes(context_len, max_length, vocab_size)
    last, large = (1 << 31) - 1, 1 << 61
    text = (last,) * context_len
    opened = OpenSession(SESSION, large, text, (), Sampling(), 1, stop_ids=(last,) * 64)
    assert decode_up(encode(opened, limit), limit) == opened
    told = (TokenLogprobs(-1.5, (last,) * 20, (-1.5,) * 20),) * context_len
    verdict = Verdict(SESSION, large, large, text, MAX_DRAFT, MAX_DRAFT, large, "length", logprobs=told)
    refusal = Refusal("malformed", "\U0001f600" * 2048, "\U0001f600" * 2048, SESSION)
    for down in (verdict, refusal):
        assert decode_down(encode(down, limit), limit) == down
    for entry_bytes in (vocab_size * 4, min(vocab_size, 256) * 6):
        proposal = bytes(max_length * (entry_bytes + 32))
        draft = Draft(SESSION, large, large, (last,) * max_length, proposal=proposal)
        assert decode_up(encode(draft, limit), limit) == draft


def test_the_limit_itself_is_limited_and_small_messages_are_small() -> None:
    assert max_message_bytes(1 << 20, 1024, 1 << 20) == MAX_MESSAGE_BYTES
    assert max_message_bytes(2048, 24, 4096) < 1 << 20
    assert max_message_bytes(40_960, 16, 151_936) < 1 << 24
    assert len(encode(Ack(SESSION, 1, 100), LIMIT)) < 32
    assert len(encode(Heartbeat(BOOT), LIMIT)) < 32
    draft = Draft(SESSION, 1, 200, tuple(range(1000, 1004)), bytes(4))
    assert len(encode(draft, LIMIT)) < 60


@pytest.mark.parametrize(
    "values",
    [
        ["hello", VERSION + 1],
        ["hello", VERSION + 1, {"a": [1, 2]}, None, 1.5, "more", "and", "more", b"x"],
        ["hello", 0, "edge-1", BOOT],
    ],
)
def test_a_draft_node_of_another_version_is_refused_by_name(values: list[object]) -> None:
    why = f"draft node speaks version {values[1]} of the protocol, not {VERSION}"
    with pytest.raises(WrongVersion, match=why) as error:
        decode_up(msgspec.msgpack.encode(values), LIMIT)
    assert refusal_for(error.value).code == "version"


def test_a_hello_that_can_be_read_keeps_its_name_whatever_its_version() -> None:
    hello = decode_up(msgspec.msgpack.encode(["hello", VERSION + 1, "edge-1", BOOT, "t", ""]), LIMIT)
    assert isinstance(hello, Hello)
    assert (hello.version, hello.name) == (VERSION + 1, "edge-1")


def test_a_verify_node_of_another_version_is_refused_by_name() -> None:
    welcome = msgspec.msgpack.encode(["welcome", VERSION + 1, "other", "fields"])
    with pytest.raises(WrongVersion, match=f"verify node speaks version {VERSION + 1}"):
        decode_down(welcome, LIMIT)
    refusal = msgspec.msgpack.encode(["refusal", "version", "I speak 2, you 1", "update", "more", {}, 1, 2, 3])
    with pytest.raises(WrongVersion, match="I speak 2, you 1"):
        decode_down(refusal, LIMIT)


def test_this_version_malformed_is_not_called_another_version() -> None:
    with pytest.raises(MalformedMessage):
        decode_up(msgspec.msgpack.encode(["hello", VERSION, "edge-1"]), LIMIT)
    with pytest.raises(MalformedMessage):
        decode_down(msgspec.msgpack.encode(["refusal", "malformed", "what"]), LIMIT)
    later = decode_down(msgspec.msgpack.encode(["refusal", "unheard_of", "what", "do"]), LIMIT)
    assert later == Refusal("unheard_of", "what", "do"), "a later release's refusal is understood as one"


def test_refusals_name_the_reason() -> None:
    too_large = refusal_for(MessageTooLarge("a message of 9 bytes exceeds the limit of 8"))
    assert (too_large.code, too_large.what) == ("too_large", "a message of 9 bytes exceeds the limit of 8")
    assert refusal_for(MalformedMessage("x" * 9999)).code == "malformed"
    assert len(refusal_for(MalformedMessage("x" * 9999)).what) == 2048
