"""Wrong HTTP options are refused before a model is loaded."""

from pathlib import Path

import pytest

from draft_node.cli import build_parser, serve
from goodspeed.errors import ConfigError

DRAFT = ["--model", "there-is-no-such-model"]
OF_PROMPTS = {"--prompts": "x", "--temperature": "0"}
OF_HTTP = {
    "--api-key": "keys",
    "--served-model-name": "x",
    "--tool-parser": "hermes",
    "--reasoning-parser": "none",
    "--chat-template-kwargs": '{"a": false}',
    "--drain-timeout-s": "1",
}


def refusal(*words: str) -> str:
    with pytest.raises(ConfigError) as error:
        serve(build_parser().parse_args([*DRAFT, *words]))
    return str(error.value)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        *((["--http", "127.0.0.1:0", flag, value], f"{flag} is for prompts") for flag, value in OF_PROMPTS.items()),
        *(([flag, value], f"{flag} is for requests over HTTP; give --http") for flag, value in OF_HTTP.items()),
        (["--refuse-control-tokens"], "--refuse-control-tokens is for requests over HTTP; give --http"),
        (["--http", "0.0.0.0:0"], "--api-key FILE"),
        (["--http", "8000"], "HOST:PORT"),
        (["--http", "127.0.0.1:0", "--chat-template-kwargs", "{"], "--chat-template-kwargs must be a JSON object"),
        (["--http", "127.0.0.1:0", "--chat-template-kwargs", "[]"], "--chat-template-kwargs must be a JSON object"),
    ],
)
def test_options_that_cannot_stand_together(words: list[str], what: str) -> None:
    assert what in refusal(*words)


def test_a_bad_file_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one two\n")
    message = refusal("--http", "127.0.0.1:0", "--api-key", str(file))
    assert "line 1" in message
    assert "two" not in message
