"""Messages of this release as the release before reads them, which knows no offers, no odds, no SLOs.

The structs here are those of that release, field by field; they are not derived from today's.
"""

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from goodspeed.slo.objectives import Objectives
from goodspeed.wire.codec import decode_down, decode_up, encode
from goodspeed.wire.handshake import VERSION, Defaults, Hello, SloTerms, Welcome, readable
from goodspeed.wire.messages import Draft, Offer, OpenSession, Sampling, Slo, Verdict

LIMIT = 1 << 20
SESSION = bytes(range(16))


class Older(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of that release's messages."""


class OlderSampling(Older, frozen=True):
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class OlderHello(Older, frozen=True, tag="hello"):
    version: int
    name: str
    boot_id: bytes
    tokenizer: str
    draft_model: str = ""
    draft_fingerprint: str = ""
    capabilities: Annotated[tuple[str, ...], Meta(max_length=64)] = ()


class OlderOpenSession(Older, frozen=True, tag="open"):
    session_id: bytes
    epoch: int
    prompt: tuple[int, ...]
    committed: tuple[int, ...]
    sampling: OlderSampling
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    verification: str = "match"
    max_draft: int = 1024
    slo: None = None
    priority: None = None
    constraint: None = None
    num_logprobs: int | None = None
    min_tokens: int = 0


class OlderDefaults(Older, frozen=True):
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()


class OlderWelcome(Older, frozen=True, tag="welcome"):
    version: int
    boot_id: bytes
    tokenizer: str
    vocab_size: int
    context_len: int
    max_length: int
    max_message_bytes: int
    heartbeat_s: float
    lease_s: float
    verifications: tuple[str, ...] = ("match", "ratio")
    eos_ids: tuple[int, ...] = ()
    target: str = ""
    target_fingerprint: str = ""
    defaults: OlderDefaults = OlderDefaults()
    chat_defaults: OlderDefaults = OlderDefaults()
    capabilities: tuple[str, ...] = ()


class OlderDraft(Older, frozen=True, tag="draft"):
    session_id: bytes
    epoch: int
    round: int
    base_len: int
    base_digest: bytes
    tokens: tuple[int, ...]
    proposal: bytes | None = None
    drafting_s: float = 0.0
    parents: None = None
    assumes: bool = False


class OlderVerdict(Older, frozen=True, tag="verdict"):
    session_id: bytes
    epoch: int
    round: int | None
    base_len: int
    tokens: tuple[int, ...]
    num_verified: int
    num_accepted: int
    next_length: int
    finish_reason: str | None = None
    logprobs: tuple[Any, ...] | None = None
    dropped: int | None = None


PAIRS = [
    (Hello(VERSION, "ana", b"bootboot", "t", "m", "f", ("odds", "offers")), OlderHello),
    (OpenSession(SESSION, 1, (1, 2), (3,), Sampling(0.5, 3, 0.9, 7), 10, (2,), min_tokens=4), OlderOpenSession),
    (Welcome(VERSION, b"bootboot", "t", 4096, 2048, 24, 1 << 20, 1.0, 6.0, capabilities=("slo",)), OlderWelcome),
    (Draft(SESSION, 1, 2, 3, bytes(8), (4, 5), b"p", 0.25, assumes=True), OlderDraft),
    (Verdict(SESSION, 1, 2, 3, (4,), 1, 1, 5, "stop", dropped=3), OlderVerdict),
]


@pytest.mark.parametrize(("message", "older"), PAIRS, ids=lambda one: getattr(one, "__name__", ""))
def test_the_release_before_reads_messages_without_what_it_does_not_know(message: Any, older: type[Older]) -> None:
    read = msgspec.msgpack.decode(encode(message, LIMIT), type=older)
    for name in older.__struct_fields__:
        value, found = getattr(message, name), msgspec.to_builtins(getattr(read, name), order=None)
        expected = msgspec.to_builtins(value)
        assert found == (expected[: len(found)] if isinstance(value, Defaults) else expected)


@pytest.mark.parametrize(("message", "older"), PAIRS, ids=lambda one: getattr(one, "__name__", ""))
def test_messages_of_the_release_before_are_read(message: Any, older: type[Older]) -> None:
    values = {name: getattr(message, name) for name in older.__struct_fields__}
    data = msgspec.msgpack.encode(older(**values))
    decode = decode_down if isinstance(message, Verdict | Welcome) else decode_up
    assert decode(data, LIMIT) == message


def test_the_release_before_refuses_what_it_does_not_know() -> None:
    """Shows that capabilities are needed: what is new must not go to a peer that did not announce it."""
    draft = Draft(SESSION, 1, 2, 3, bytes(8), (4, 5), odds=b"\x00\x10", num_ngram=1)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(encode(draft, LIMIT), type=OlderDraft)
    chat = Objectives(0.5, 0.05, "chat")
    opened = OpenSession(SESSION, 1, (1, 2), (), Sampling(), 10, slo=Slo(chat, 0.2))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(encode(opened, LIMIT), type=OlderOpenSession)
    welcome = Welcome(VERSION, b"bootboot", "t", 4096, 2048, 24, 1 << 20, 1.0, 6.0, slo=SloTerms((chat,)))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(encode(welcome, LIMIT), type=OlderWelcome)


def test_the_release_before_is_told_only_those_defaults_that_it_knows() -> None:
    """The others are told to draft nodes that announced it."""
    says = Defaults(0.5, 20, None, ("a",), repetition_penalty=1.1, min_p=0.05)
    welcome = Welcome(VERSION, b"bootboot", "t", 4096, 2048, 24, 1 << 20, 1.0, 6.0, defaults=says, chat_defaults=says)
    assert decode_down(encode(readable(welcome, ("logit_rules",)), LIMIT), LIMIT) == welcome
    for_older = encode(readable(welcome, ("slo",)), LIMIT)
    read = msgspec.msgpack.decode(for_older, type=OlderWelcome)
    assert read.defaults == read.chat_defaults == OlderDefaults(0.5, 20, None, ("a",))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(encode(welcome, LIMIT), type=OlderWelcome)


@pytest.mark.parametrize("slo", [Slo(Objectives(0.5, None, "chat"), 0.2, 1.5), Slo(Objectives(tpot_s=0.05))])
def test_objectives_travel_as_they_are(slo: Slo) -> None:
    opened = OpenSession(SESSION, 1, (1, 2), (), Sampling(), 10, slo=slo)
    assert decode_up(encode(opened, LIMIT), LIMIT) == opened


class OlderOffer(Older, frozen=True, tag="offer"):
    """As a release reads it that takes offers of draft models, and knows no trees."""

    session_id: bytes
    epoch: int
    base_len: int
    tokens: tuple[int, ...]
    odds: bytes
    source: str = "ngram"


def test_a_chain_of_tokens_is_offered_as_before_there_were_trees() -> None:
    offer = Offer(SESSION, 1, 3, (4, 5), bytes(2), "model")
    assert msgspec.msgpack.decode(encode(offer, LIMIT), type=OlderOffer).tokens == (4, 5)
    tree = Offer(SESSION, 1, 3, (4, 5), bytes(2), "model", bytes(2))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(encode(tree, LIMIT), type=OlderOffer)
