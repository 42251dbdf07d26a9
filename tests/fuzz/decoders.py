"""Every decoder of outside bytes, as one table: what it is given, what it may raise, and right inputs to be spoilt.

`check` is the one judge, for Hypothesis and for longer runs: a decoder takes the bytes or raises an error with a name,
which is fit to be shown, whatever the bytes are.
"""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import msgspec
import torch
from starlette.requests import Request

from draft_node.http.ask.body import read
from draft_node.http.schema import chat as schemas
from draft_node.http.schema.errors import ApiError
from draft_node.http.schema.messages import MessagesRequest
from draft_node.http.schema.strict import Strict
from draft_node.service.service import body_queue
from experiments.simulation.texts import proposals as recorded
from goodspeed.engine.model_files.checkpoint_folder import INDEX, find_folder
from goodspeed.engine.tokenizing import generation_settings
from goodspeed.errors import CheckpointError, ConfigError, InvalidProposal, PromptError, ProtocolError
from goodspeed.exact import proposal_bytes, proposals
from goodspeed.serving import api_keys, prompts
from goodspeed.wire import keys, messages
from goodspeed.wire.codec import decode_down, decode_up
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.handshake import VERSION, Defaults, Heartbeat, Hello, Leave, Sibling, Welcome
from goodspeed.wire.messages import Ack, Close, DownMessage, Draft, OpenSession, Refusal, Sampling, UpMessage, Verdict
from tests.fuzz.damage import WRONG_VALUES, damaged, wrong_fields
from verify_node.process.enrolment import Enrolment

LIMIT = 1 << 20
LONGEST = 4000  # characters of an error: it quotes what was wrong, and never all of it
Make = Callable[[Random], bytes]
Spoil = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Decoder:
    """A function that takes bytes from outside."""

    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    right: Make  # something that it takes
    wrong: Make  # something nearly right


def check(decoder: Decoder, data: bytes) -> bool:
    """True if it takes these bytes; anything but one of its errors comes through."""
    try:
        decoder.read(data)
    except decoder.errors as error:
        said = error
    else:
        return True
    text = str(said)
    assert text
    assert len(text) < LONGEST, f"{len(text)} characters"
    assert text.isprintable() or isinstance(said, ApiError), ascii(text)  # that leaves as JSON
    return False


# -- the wire ----------------------------------------------------------------------------------------------------------

_UP: tuple[UpMessage, ...] = (
    Hello(VERSION, "edge-1", b"bootboot", "t", "model"),
    OpenSession(bytes(16), 1, (1, 2, 300), (4,), Sampling(0.5, 20, 0.9, 7), 9, (2,), "ratio", num_logprobs=2),
    Draft(bytes(16), 1, 3, (4, 5), b"\x10\x20", "ngram", bytes(2), complete=True, proposal=b"\x01\x00"),
    Ack(bytes(16), 1, 3),
    Close(bytes(16), 1),
    Heartbeat(b"bootboot"),
    Leave(),
)
_TOLD: Any = {"target": "big", "target_fingerprint": "f", "chat_defaults": Defaults(0.7, 20, 0.9, ("User:",))}
_LOGPROBS = messages.TokenLogprobs(-0.5, (4,), (-0.5,))
_DOWN: tuple[DownMessage, ...] = (
    Welcome(VERSION, b"bootboot", "t", 4096, 2048, 1 << 20, 1.0, 6.0, eos_ids=(0,), **_TOLD),
    Heartbeat(b"bootboot", (Sibling("tcp://10.0.0.1:5555"),)),
    messages.Redirect(bytes(16), 1, "tcp://10.0.0.1:5555", "", 1, "load"),
    Verdict(bytes(16), 1, 3, (4,), 1, 1, 5, "stop", 9, "self", True, (_LOGPROBS,), 3),
    Refusal("malformed", "what", "what to do", bytes(16), 1),
    Heartbeat(b"bootboot"),
)

NOT_FUZZED = {*UpMessage.__args__, *DownMessage.__args__} - {type(one) for one in (*_UP, *_DOWN)}
"""Messages without an example: none (`test_decoders.py`)."""


def _wire(decode: Callable[[bytes, int], object], examples: tuple[msgspec.Struct, ...]) -> Decoder:
    def right(random: Random) -> bytes:
        return msgspec.msgpack.encode(random.choice(examples))

    def wrong(random: Random) -> bytes:
        if random.random() < 0.5:
            return wrong_fields(random.choice(examples), random)
        return damaged(right(random), random)

    return Decoder(lambda data: decode(data, LIMIT), (ProtocolError,), right, wrong)


VOCABS = (1, 40, 70_000)


def _proposal(data: bytes) -> None:
    """Two bytes say how many positions are expected, of which vocabulary, and whether tokens were drawn from them."""
    first, second = data[:2].ljust(2, b"\0")
    num_positions, vocab_size = first % 5, VOCABS[second % len(VOCABS)]
    tokens = [3] * num_positions if first >= 128 else None
    cut = proposal_bytes.cut(data[2:], num_positions)
    assert data[2:].startswith(cut)
    probs = proposals.decode(data[2:], num_positions, vocab_size, tokens)
    assert probs.shape == (num_positions, vocab_size)
    assert bool((probs >= 0).all())
    torch.testing.assert_close(probs.sum(1), torch.ones(num_positions))


def _right_proposal(random: Random) -> bytes:
    number, place = random.randrange(1, 5), random.randrange(2)
    noise = torch.Generator().manual_seed(random.randrange(1 << 30))
    probs = torch.randn(number, VOCABS[place], generator=noise).softmax(1)
    sent = b"".join(proposals.make(probs, random.choice(proposals.KINDS), k=8).pack())
    return bytes((number, place)) + sent


def _wrong_proposal(random: Random) -> bytes:
    right = _right_proposal(random)
    return right[:2] + damaged(right[2:], random)


# -- files -------------------------------------------------------------------------------------------------------------


@cache
def _folder() -> Path:
    """Makes a folder in memory where there is such a place, since each input is a file."""
    return Path(mkdtemp(prefix="goodspeed-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))


def _file(read: Callable[[str], object], data: bytes) -> None:
    path = _folder() / "input.pub"
    path.write_bytes(data)
    path.chmod(0o600)
    read(str(path))


def _enrolment(data: bytes) -> None:
    """A file of the folder may enrol somebody or nobody, and never fails those who look."""
    folder = _folder() / "enrolled"
    folder.mkdir(exist_ok=True)
    (folder / "input.pub").write_bytes(data)
    assert all(isinstance(one, Enrolled) for one in Enrolment(str(folder)).enrolled.values())


def _checkpoint(name: str, data: bytes) -> None:
    folder = _folder() / "checkpoint"
    folder.mkdir(exist_ok=True)
    for file in (*folder.iterdir(),):
        file.unlink()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model-1.safetensors").touch()
    (folder / name).write_bytes(data)
    find_folder(str(folder))


def _generation_settings(data: bytes) -> None:
    folder = _folder()
    (folder / generation_settings.FOR_ALL).write_bytes(data)
    generation_settings.read("name", folder)


CHECKPOINT = b'{"model_type": "llama", "vocab_size": 9}'
SHARDS = b'{"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}'
GENERATION_SETTINGS = b'{"temperature": 0.5, "top_k": 9, "top_p": 0.5, "stop_strings": ["a"], "min_p": 0.5}'
KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
ENROLLED = f'name = "edge-1"\npublic_key = "{KEY}"\nweight = 2.5\nmax_sessions = 3\n'
SECRET = f'# SECRET\nname = "edge-1"\npublic_key = "{KEY}"\nsecret_key = "{KEY}"\n'
VERIFY_SECRET = SECRET.replace('name = "edge-1"\n', "")
_PATH = recorded.ModelPath("10", "!!", "!!", "!!", "!")
_TEXT = recorded.Text(domain="a", temperature=0.0, seed=1, prompt_len=3, own=",!", history="!,", models={"d": _PATH})
_TITLE = recorded.Title(recorded.VERSION, "t", ("d",), 2)
RECORDING = msgspec.json.encode(_TITLE) + b"\n" + msgspec.json.encode(_TEXT) + b"\n"


def _json(data: bytes, random: Random) -> bytes:
    """The same JSON with one value in it replaced, or spoilt as bytes."""
    if random.random() < 0.5:
        return damaged(data, random)
    lines = data.rstrip(b"\n").split(b"\n")
    place = random.randrange(len(lines))
    lines[place] = json.dumps(_replaced(json.loads(lines[place]), random), default=repr).encode()
    return b"\n".join(lines)


def _replaced(value: object, random: Random) -> object:
    if isinstance(value, dict) and value and random.random() < 0.9:
        name = random.choice(list(value))
        return {**value, random.choice((name, name, name, "new \x1b")): _replaced(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.9:
        place = random.randrange(len(value))
        return [*value[:place], _replaced(value[place], random), *value[place + 1 :]]
    wrong = random.choice(WRONG_VALUES)
    if isinstance(wrong, dict):
        return {str(key): item for key, item in wrong.items()}
    return repr(wrong) if isinstance(wrong, bytes | msgspec.msgpack.Ext) else wrong


def _by_example(
    read: Callable[[bytes], object], errors: tuple[type[Exception], ...], example: bytes, spoil: Spoil = _json
) -> Decoder:
    return Decoder(read, errors, lambda random: example, partial(spoil, example))


def _of_file(read: Callable[[str], object], example: str | bytes, spoil: Spoil = damaged) -> Decoder:
    data = example if isinstance(example, bytes) else example.encode()
    return _by_example(partial(_file, read), (ConfigError, PromptError), data, spoil)


# -- HTTP --------------------------------------------------------------------------------------------------------------

_CHAT = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_tokens": 9, "seed": 1,
         "temperature": 0.5, "stop": ["a"], "stream": True, "metadata": {"a": "b"}}  # fmt: skip
_BLOCKS = [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image", "source": {"type": "url"}}]},
           {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": ""}]}}]  # fmt: skip
_AGENT = {"max_tokens": 9, "messages": [{"role": "user", "content": _BLOCKS}], "system": [{"type": "text", "text": ""}],
          "tools": [{"name": "f", "input_schema": {}, "allowed_callers": ["direct"]}, {"type": "web_search_20250305"}],
          "thinking": {"type": "adaptive", "display": "omitted"}, "new": {"beta": 1}}  # fmt: skip
_BODIES: tuple[tuple[type[Strict], dict[str, object]], ...] = (
    (schemas.ChatRequest, _CHAT),
    (schemas.CompletionRequest, {"prompt": [[1, 2], [3]], "n": 2, "goodspeed": {"max_draft": 3}, "logprobs": 2}),
    (schemas.TokenizeRequest, {"prompt": "text", "add_special_tokens": True}),
    (schemas.DetokenizeRequest, {"tokens": [1, 2, 3]}),
    (MessagesRequest, _AGENT),
)


def _body(data: bytes) -> None:
    """The first byte says which route, up to the first empty line come headers, and then the body."""
    schema, _ = _BODIES[data[:1].ljust(1, b"\0")[0] % len(_BODIES)]
    head, _, body = data[1:].partition(b"\n\n")
    headers = [(name.lower(), value) for name, _, value in (line.partition(b":") for line in head.split(b"\n"))]
    scope = {"type": "http", "method": "POST", "path": "/v1", "headers": headers}

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    asyncio.run(read(Request(scope, receive), schema, body_queue()))


def _right_body(random: Random) -> bytes:
    place = random.randrange(len(_BODIES))
    body = json.dumps(_BODIES[place][1]).encode()
    head = b"content-type: application/json\nanthropic-beta: new\ncontent-length: %d\n\n" % len(body)
    return bytes((place,)) + head + body


def _wrong_body(random: Random) -> bytes:
    right = _right_body(random)
    if random.random() < 0.4:
        return right[:1] + damaged(right[1:], random)
    head, _, body = right.partition(b"\n\n")
    return head + b"\n\n" + _json(body, random)


def _line(data: bytes) -> object:
    """Reads prompts as they come on standard input."""
    return prompts.parse(data.decode("utf-8", "replace"), "line 1")


_PROMPT = b'{"prompt": "Once", "domain": "story", "seed": 7}'

DECODERS: dict[str, Decoder] = {
    "up": _wire(decode_up, _UP),
    "down": _wire(decode_down, _DOWN),
    "proposal": Decoder(_proposal, (InvalidProposal,), _right_proposal, _wrong_proposal),
    "prompt line": _by_example(_line, (PromptError,), _PROMPT),
    "prompts": _of_file(prompts.read_file, _PROMPT + b"\n\n" + _PROMPT),
    "enrolled key": _of_file(keys.read_enrolled, ENROLLED),
    "draft key": _of_file(keys.read_draft_pair, SECRET),
    "verify key": _of_file(keys.read_verify_pair, VERIFY_SECRET),
    "verify public key": _of_file(keys.read_verify_key, f'public_key = "{KEY}"\n'),
    "enrolment": _by_example(_enrolment, (), ENROLLED.encode(), damaged),
    "API keys": _of_file(api_keys.read, "# keys\nabcdefgh\nijklmnop\n"),
    "recorded texts": _of_file(recorded.load.__wrapped__, RECORDING, _json),
    "checkpoint": _by_example(partial(_checkpoint, "config.json"), (CheckpointError,), CHECKPOINT),
    "shards": _by_example(partial(_checkpoint, INDEX), (CheckpointError,), SHARDS),
    "generation settings": _by_example(_generation_settings, (CheckpointError,), GENERATION_SETTINGS),
    "HTTP body": Decoder(_body, (ApiError,), _right_body, _wrong_body),
}
