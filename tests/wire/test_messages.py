"""The messages' own rules: what is pinned for ever, what is refused, what may be appended."""

import re
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path

import msgspec
import pytest

from goodspeed.wire.generation import Sampling
from goodspeed.wire.handshake import VERSION, Heartbeat, Hello, Leave, Welcome
from goodspeed.wire.messages import Ack, Close, DownMessage, Draft, OpenSession, Redirect, Refusal, UpMessage, Verdict

SESSION = bytes(range(16))
BOOT = b"bootboot"

SAMPLES: list[UpMessage | DownMessage] = [
    Hello(VERSION, "edge-1", BOOT, tokenizer="t"),
    OpenSession(SESSION, 1, prompt=(1, 2), committed=(3,), sampling=Sampling(temperature=0.7), max_tokens=9),
    Draft(SESSION, 1, base_len=3, tokens=(4, 5)),
    Ack(SESSION, 1, base_len=3),
    Close(SESSION, 1),
    Heartbeat(BOOT),
    Leave(),
    Welcome(VERSION, BOOT, "t", 4096, context_len=2048, max_message_bytes=1 << 20, heartbeat_s=1.0, lease_s=6.0),
    Redirect(SESSION, 1, "tcp://10.0.0.1:5555", "k" * 40, 1, "load"),
    Verdict(SESSION, 1, base_len=3, tokens=(4,), num_verified=0, num_accepted=0),
    Refusal("stale_epoch", what="epoch 1 is below 2", what_to_do="drop messages of the old epoch"),
]

PINNED = {  # the first fields of version 4, in their order: never to be moved, renamed or given another meaning
    "hello": "version name boot_id tokenizer draft_model draft_fingerprint",
    "open": "session_id epoch prompt committed sampling max_tokens stop_ids verification max_draft slo constraint "
    "num_logprobs min_tokens drafter otherwise hops logit_rules cache_salt num_prompt_logprobs",
    "draft": "session_id epoch base_len tokens probabilities source parents complete proposal",
    "ack": "session_id epoch base_len",
    "close": "session_id epoch",
    "heartbeat": "boot_id siblings",
    "leave": "",
    "welcome": "version boot_id tokenizer vocab_size context_len max_message_bytes heartbeat_s lease_s "
    "eos_ids target target_fingerprint defaults chat_defaults slo constraints promises",
    "redirect": "session_id epoch endpoint server_key hops reason",
    "verdict": "session_id epoch base_len tokens num_verified num_accepted may_draft finish_reason least_probability "
    "source promised logprobs num_cached prompt_logprobs",
    "refusal": "code what what_to_do session_id epoch",
}


def name(message: msgspec.Struct) -> str:
    return type(message).__name__


@pytest.mark.parametrize("message", SAMPLES, ids=name)
def test_fields_keep_their_places(message: msgspec.Struct) -> None:
    pinned = PINNED[str(message.__struct_config__.tag)].split()
    fields = msgspec.structs.fields(message)
    assert [field.name for field in fields][: len(pinned)] == pinned
    for field in fields[len(pinned) :]:
        assert not field.required, f"{field.name} was appended without a default: old bytes would not decode"


def test_every_message_is_among_the_samples() -> None:
    assert {type(message) for message in SAMPLES} == {*UpMessage.__args__, *DownMessage.__args__}


BAD_FIELDS: dict[str, tuple[object, ...]] = {
    "hello.name": ("", "line\n", "x" * 65),
    "hello.boot_id": (b"short",),
    "hello.draft_model": ("\x1b[31m",),
    "open.session_id": (b"x" * 15, b"x" * 17),
    "open.prompt": ([-1], [1 << 31], [True]),
    "open.sampling": ([-0.1], [nan], [inf], [1.0, -1], [1.0, 0, 0.0], [1.0, 0, 1.0, 1 << 63]),
    "open.max_tokens": (0,),
    "open.stop_ids": ([1] * 65,),
    "open.slo": ([], [[0.0]], [[None, nan]], [[None, 1e9]], [[None, 0.1, "a b"]], [[None, 0.1], -1.0]),
    "open.max_draft": (65,),
    "open.constraint": (["yaml"], ["regex", "x" * ((1 << 16) + 1)], ["regex", "x", [1] * 17]),
    "open.logit_rules": ([2.1], [0.0, nan], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, [[1, 1.0]] * 1025]),
    "open.cache_salt": (b"x" * 33,),
    "open.num_logprobs": (21, -1, True),
    "open.min_tokens": ((1 << 20) + 1,),
    "draft.epoch": (1 << 62,),
    "draft.tokens": ([1] * 65,),
    "draft.probabilities": (b"\x00", b"\x00" * 3, "00"),
    "draft.source": ("self",),
    "draft.parents": ([0], b"\x00"),
    "verdict.logprobs": (
        *([[nan]], [[0.1]], [[-9999.1]], [], [[-1.0], [-1.0]]),
        *([[-1.0, [1, 2], [-1.0]]], [[-1.0, list(range(21)), [-1.0] * 21]]),
    ),
    "verdict.num_accepted": (-1, 1),  # of num_verified 0
    "verdict.least_probability": (256,),
    "refusal.what": ("x" * 2049,),
}


@pytest.mark.parametrize(
    ("place", "value"),
    [(place, value) for place, values in BAD_FIELDS.items() for value in values],
    ids=lambda value: repr(value)[:24],
)
def test_a_value_out_of_range_is_refused(place: str, value: object) -> None:
    tag, field = place.split(".")
    message = next(message for message in SAMPLES if message.__struct_config__.tag == tag)
    values = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    values[1 + PINNED[tag].split().index(field)] = value
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(values), type=type(message))


@pytest.mark.parametrize("message", SAMPLES, ids=name)
def test_every_field_has_bounds(message: msgspec.Struct) -> None:
    unbounded = [*unbounded_in(msgspec.inspect.type_info(type(message)), str(message.__struct_config__.tag))]
    assert not unbounded, "give the field's type a `Meta`"


def unbounded_in(kind: msgspec.inspect.Type, place: str) -> Iterator[str]:
    """The places in a type where a sender could put any number, or any length up to that of the message."""
    inspect = msgspec.inspect
    match kind:
        case inspect.IntType(le=None, lt=None) | inspect.IntType(ge=None) | inspect.FloatType(le=None):
            yield place
        case inspect.StrType(max_length=None, pattern=pattern) if not re.search(r"\{\d+\}", pattern or ""):
            yield place
        case inspect.BytesType(max_length=None) if place != "draft.proposal":  # `proposals.py` has its bounds
            yield place
        case inspect.VarTupleType(max_length=None):
            yield place
        case inspect.VarTupleType(item_type=item):
            yield from unbounded_in(item, place)
        case inspect.UnionType(types=types):
            for one in types:
                yield from unbounded_in(one, place)
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from unbounded_in(field.type, f"{place}.{field.name}")


def test_an_unknown_field_is_refused() -> None:
    values = [*msgspec.msgpack.decode(msgspec.msgpack.encode(Ack(SESSION, 1, 3))), "more"]
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(values), type=Ack)


def test_the_parents_of_a_draft_make_a_tree() -> None:
    draft = Draft(SESSION, 1, 3, (5, 6, 7), b"\x01\x01\x01", "model", b"\x00\x00\x02")
    encoded = msgspec.msgpack.encode(draft)
    assert msgspec.msgpack.decode(encoded, type=UpMessage) == draft
    wrong = [(b"\x00\x02\x00", "token 1 follows token 1"), (b"\x00\x00\xff", "token 2 follows token 254")]
    for parents, why in wrong:
        assert encoded.count(b"\x00\x00\x02") == 1
        with pytest.raises(msgspec.ValidationError, match=why):
            msgspec.msgpack.decode(encoded.replace(b"\x00\x00\x02", parents), type=UpMessage)
    with pytest.raises(ValueError, match="1 parents for 3 tokens"):
        Draft(SESSION, 1, 3, (5, 6, 7), bytes(3), "model", b"\x00")


def test_the_documents_have_the_version_and_every_message() -> None:
    root = Path(__file__).parents[2]
    assert f"protocol version {VERSION}" in (root / "CHANGELOG.md").read_text()
    text = (root / "docs" / "PROTOCOL.md").read_text().partition("### Names")[0]
    assert f"This is version {VERSION}." in text
    cells = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    for place, messages in ((1, UpMessage), (3, DownMessage)):
        told = {word for line in cells for word in re.findall(r"`(\w+)`", line[place])}
        assert told == {message.__name__ for message in messages.__args__}
