"""Wrong settings of a daemon are found before torch is imported, and so before any model is loaded."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import split
from typing import Any

import pytest
from msgspec.structs import replace

from goodspeed.errors import ConfigError, TransportError
from goodspeed.serving.web.address import bind, start_listening, url
from goodspeed.wire import keys
from goodspeed.wire.zmq.authentication import new_pair
from goodspeed.wire.zmq.opening_channels import bind_verify
from verify_node.config import VerifyConfig
from verify_node.process.preflight import check

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, os, sys
from importlib import import_module
from verify_node import cli
from draft_node import cli

ended = []
for first, words in json.load(sys.stdin):
    reading, writing = os.pipe()
    if not (process := os.fork()):
        exec(first)
        os.dup2(writing, 2)
        sys.argv = words
        try:
            status = import_module(words[0] + ".cli").main()
        except SystemExit as end:
            status = end.code
        print("loaded:", *{"torch", "transformers"} & {*sys.modules}, file=sys.stderr)
        sys.exit(status)
    os.close(writing)
    with os.fdopen(reading) as told:
        lines = told.read().splitlines()
    ended.append((os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), lines))
print(json.dumps(ended))
"""
"""Runs each command in a fork, and gives its exit status and lines of standard error; the last one: what it loaded."""

SCARCE = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
held = [open("/dev/null") for _ in range(84)]
"""
"""A limit with which a node starts, of which most is used up already."""

VERIFY = "verify_node --model tiny-target --bind tcp://127.0.0.1:0"
DRAFT = "draft_node --model tiny-draft-s --verify tcp://127.0.0.1:5999"
SERVED = f"{DRAFT} --http 127.0.0.1:0"
NO_MODEL = "--model tiny-goose"  # a fault of the machine is said before one of the model
IN_USE = "BUSY: Address already in use; another program listens"

REFUSED: list[tuple[Any, ...]] = [
    (f"{VERIFY} --bind tcp://BUSY {NO_MODEL}", 1, f"cannot bind tcp://{IN_USE}"),
    (f"{VERIFY} --bind tcp://192.0.2.1:5555 --trusted-network", 1, "choose an address of this machine"),
    (f"{VERIFY} --bind tcp://0.0.0.0:0 {NO_MODEL}", 2, "--trusted-network"),
    (f"{VERIFY} --bind localhost", 2, "tcp://HOST:PORT"),
    (f"{VERIFY} --http BUSY {NO_MODEL}", 1, f"cannot bind --http {IN_USE}"),
    (f"{VERIFY} --http 127.0.0.1:0 {NO_MODEL} SCARCE", 2, "too few to serve HTTP"),
    (
        f"{VERIFY} --http 127.0.0.1:0 --api-key /no/such/keys",
        2,
        "--api-key /no/such/keys: cannot read it (No such file or directory); write a file with one key a line",
    ),
    (f"{VERIFY} --policy greedy", 2, "no policy is named 'greedy'", "fixed, gradient, random"),
    (f"{VERIFY} --policy no_such_module:Mine", 2, "no_such_module cannot be imported: ModuleNotFoundError"),
    (f"{VERIFY} --key /no/such/key --enrolled /no", 2, "/no/such/key: cannot read it"),
    (f"{VERIFY} --key KEYS/verify.key --enrolled KEYS", 2, "does not match"),
    (f"{VERIFY} {NO_MODEL}", 1, "model 'tiny-goose' was not found", "tiny-target"),
    (f"{VERIFY} --model {ROOT}/docs", 1, f"{ROOT}/docs", "is not a checkpoint folder", "config.json"),
    (f"{VERIFY} --budget many", 2, "--budget: 'many' is neither a number nor auto"),
    (f"{VERIFY} --device tpu", 2, "tpu"),
    (f"{VERIFY} --tp 4", 2, "--tp 4: tiny-target has 6 attention heads, which cannot be split", "use at most --tp 3"),
    (
        f"{VERIFY} --model smollm2 --device cuda",
        2,
        "--device cuda: smollm2 is a GGUF file, which is computed on a CPU only; leave it out, or use a checkpoint",
    ),
    (f"{VERIFY} --model no/such.gguf", 1, "no/such.gguf: it cannot be read (No such file or directory); give"),
    (f"{VERIFY} --draft-model KEYS/damaged.gguf", 1, "KEYS/damaged.gguf: this is no GGUF file; get it again"),
    (f"{VERIFY} --polici fixed", 2, "unknown option --polici; did you mean --policy?"),
    (f"{DRAFT} --http BUSY {NO_MODEL}", 1, f"cannot bind --http {IN_USE}"),
    (f"{DRAFT} --http 127.0.0.1:0 {NO_MODEL} SCARCE", 2, "too few to serve HTTP"),
    (
        f"{DRAFT} --prompts /no/such/file --json",
        1,
        "--prompts /no/such/file: cannot read it (No such file or directory); give a file with one JSON object a line",
    ),
    (f"{DRAFT} {NO_MODEL} --verify tcp://192.0.2.1:5555 --trusted-network", 2, "give --http HOST:PORT for users"),
    (f"{DRAFT} --name 'no spaces'", 2, "--name 'no spaces' must be"),
    (f"{DRAFT} --prompts prompts.jsonl", 2, "--prompts writes JSON events; give --json, too"),
    (f"{SERVED} {NO_MODEL}", 1, "model 'tiny-goose' was not found"),
    (f"{SERVED} --model no/such.gguf", 1, "no/such.gguf: it cannot be read (No such file or directory); give"),
    (f"{SERVED} --model KEYS/damaged.gguf", 1, "KEYS/damaged.gguf: this is no GGUF file; get it again"),
    (f"{SERVED} --model none --tokenizer no.gguf", 1, "--tokenizer no.gguf: it cannot be read (No such"),
]
"""Commands, which may want a scarce machine or the places below; their exit statuses, and what they say."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """BUSY: HOST:PORT where somebody listens. KEYS: a folder with two halves of two pairs of keys, as one pair, and a
    damaged GGUF file."""
    keys_folder = tmp_path_factory.mktemp("keys")
    one, two = new_pair(), new_pair()
    keys.write_secret(keys_folder / "verify.key", replace(one, public_key=two.public_key))
    (keys_folder / "damaged.gguf").write_bytes(b"GGML")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield {"BUSY": f"127.0.0.1:{other.getsockname()[1]}", "KEYS": str(keys_folder)}


@pytest.fixture(scope="module")
def told(places: dict[str, str]) -> list[tuple[int, list[str]]]:
    commands = [
        (SCARCE if "SCARCE" in words else "", split(placed(words.removesuffix(" SCARCE"), places)))
        for words, *_ in REFUSED
    ]
    program, told = [sys.executable, "-c", PROGRAM], json.dumps(commands)
    ended = subprocess.run(program, cwd=ROOT, input=told, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return list(json.loads(ended.stdout.splitlines()[-1]))


def placed(text: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        text = text.replace(name, place)
    return text


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[" ".join(words.split()[5:]) for words, *_ in REFUSED])
def test_it_is_said_before_torch_is_loaded(number, told, places) -> None:
    asked, status, *said = REFUSED[number]
    ended, lines = told[number]
    assert ended == status
    for words in said:
        assert placed(words, places) in lines[-2]
    assert lines[-1] == "loaded:"
    assert not [line for line in lines if "loading" in line or "Traceback" in line]
    is_open = "tcp://192.0.2.1:5555 is open to its network WITHOUT keys"
    assert any(is_open in line for line in lines) == ("--trusted-network" in asked)


def test_the_wire_and_the_page_have_a_port_each() -> None:
    with pytest.raises(ConfigError, match=r"^--bind and --http have the same address; give each a port of its own$"):
        check(VerifyConfig(model="tiny-target", bind="tcp://127.0.0.1:5999", http="127.0.0.1:5999"))


def test_the_pages_port_is_held_while_the_model_loads_and_refuses_until_it_is_served() -> None:
    """Somebody who connects too early is refused at once, and does not wait in a queue that nobody serves."""
    found = check(VerifyConfig(model="tiny-target", bind="tcp://127.0.0.1:0", http="127.0.0.1:0"))
    with found.http.listener as listener:
        address = url(listener).removeprefix("http://")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listener.getsockname(), timeout=10)
        with pytest.raises(TransportError, match="another program listens there; stop it"):
            bind(address, None)
        start_listening(listener)
        socket.create_connection(listener.getsockname(), timeout=10).close()


def test_a_port_may_be_used_again_at_once_after_its_connections_ended() -> None:
    """Connections that ended linger in the system for a minute. A node that is started again must not be kept out."""
    with bind("127.0.0.1:0", None) as listener:
        start_listening(listener)
        listener.setblocking(True)
        address = url(listener).removeprefix("http://")
        with socket.create_connection(listener.getsockname()) as user:
            accepted, _ = listener.accept()
            accepted.close()  # this side ends it, so this side's port lingers
            assert user.recv(1) == b""
    bind_verify(f"tcp://{address}").close()
    bind(address, None).close()
