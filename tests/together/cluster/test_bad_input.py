"""Each wrong use of the two daemons has a named error, and a failed command says so by its exit status."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from draft_node import cli as draft_cli
from goodspeed.embedded.models import path
from tests.nodes import VerifyNode
from verify_node import cli as verify_cli

pytestmark = pytest.mark.nodes

Command = Callable[[list[str]], tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process; gives its exit status and what it said on standard error."""

    def call(arguments: list[str]) -> tuple[int, str]:
        main = {"goodspeed-verify": verify_cli.main, "goodspeed-draft": draft_cli.main}[arguments[0]]
        monkeypatch.setattr(sys, "argv", arguments)
        capfd.readouterr()
        try:
            status = main()
        except SystemExit as exit_:  # argparse
            status = int(exit_.code or 0)
        return status, capfd.readouterr().err

    return call


def verify(*options: str) -> list[str]:
    return ["goodspeed-verify", "--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", *options]


def draft(endpoint: str, *options: str) -> list[str]:
    return ["goodspeed-draft", "--model", "tiny-draft-s", "--verify", endpoint, "--name", "bad-input", *options]


def test_a_busy_port_of_a_trusted_network(run: Command) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        status, error = run(verify("--bind", address, "--trusted-network"))
    assert status == 1
    assert "another program listens there" in error
    assert f"--trusted-network: {address} is open to its network WITHOUT keys" in error


def test_a_trusted_network_is_said_loudly(run: Command) -> None:
    _, error = run(draft("tcp://192.0.2.1:5555", "--trusted-network", "--model", "tiny-goose"))
    assert "--trusted-network: tcp://192.0.2.1:5555 is open to its network WITHOUT keys" in error


def test_a_draft_model_of_another_family(tmp_path: Path, run: Command, verify: VerifyNode) -> None:
    """The same weights with a tokenizer in which two tokens changed places."""
    other = tmp_path / "other"
    other.mkdir()
    for file in path("tiny-draft-s").iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    one, two = [word for word, number in vocab.items() if number in (300, 301)]
    vocab[one], vocab[two] = vocab[two], vocab[one]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "hello"}')
    status, error = run(draft(verify.endpoint, "--model", str(other), "--prompts", str(prompts), "--json"))
    assert status == 1
    assert "(tokenizer)" in error
    assert "choose a draft model of the target's family" in error


def test_bad_prompts_fail_alone(tmp_path: Path, run: Command, verify: VerifyNode) -> None:
    prompts = tmp_path / "prompts.jsonl"
    long = "word " * 5000
    prompts.write_text("\n".join(json.dumps({"prompt": text, "seed": 1}) for text in ("The first", long, "The last")))
    status, error = run(draft(verify.endpoint, "--prompts", str(prompts), "--max-tokens", "8", "--json"))
    assert status == 1
    assert "prompt 2 failed" in error
    assert "leave no room in the target's context of 2048" in error
    assert "prompt 1" not in error
    assert "prompt 3" not in error
