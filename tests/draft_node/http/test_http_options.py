"""What is refused before a model is loaded."""

from pathlib import Path

import pytest

from draft_node.cli import build_parser, serve
from goodspeed.errors import ConfigError

DRAFT = ["--model", "there-is-no-such-model"]


def refusal(*words: str) -> str:
    with pytest.raises(ConfigError) as error:
        serve(build_parser().parse_args([*DRAFT, *words]))
    return str(error.value)


@pytest.mark.parametrize(
    "words",
    [["--prompts", "x"], ["--temperature", "0"], ["--seed", "1"]],
)
def test_what_requests_say_themselves(words: list[str]) -> None:
    assert refusal("--http", "127.0.0.1:0", *words).startswith(f"{words[0]} is for prompts")


def test_keys_without_http() -> None:
    assert "--http" in refusal("--api-key", "keys")


@pytest.mark.parametrize(
    "words",
    [
        ["--tool-parser", "hermes"],
        ["--reasoning-parser", "none"],
        ["--chat-template-kwargs", '{"enable_thinking": false}'],
    ],
)
def test_forms_of_chats_without_http(words: list[str]) -> None:
    assert refusal(*words) == f"{words[0]} is for chats over HTTP; give --http HOST:PORT too"


def test_beyond_loopback_without_keys() -> None:
    assert "--api-key FILE" in refusal("--http", "0.0.0.0:0")


def test_a_bad_address() -> None:
    assert "HOST:PORT" in refusal("--http", "8000")


def test_a_bad_file_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one two\n")
    message = refusal("--http", "127.0.0.1:0", "--api-key", str(file))
    assert "line 1" in message
    assert "two" not in message
