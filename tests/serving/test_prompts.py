"""Prompt lines: what is read, and which line is wrong and why."""

import json
from pathlib import Path

import pytest

from goodspeed.errors import PromptError
from goodspeed.serving.prompts import Prompt, parse, read_file


def test_a_file_gives_its_prompts_in_order_and_a_line_ends_only_at_a_newline(tmp_path: Path) -> None:
    """JSON may hold separators that Python also takes for ends of lines."""
    text, file = "two\u2028three\x85four", tmp_path / "prompts.jsonl"
    last = json.dumps({"prompt": text}, ensure_ascii=False)
    file.write_text(f'{{"prompt": "one", "domain": "math", "seed": 7}}\n\n{last}\n', encoding="utf-8")
    assert read_file(file) == [Prompt("one", "math", 7), Prompt(text, "", None)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "truncated"),
        ("[" * 100_000, "Expected `object`"),
        ('{"prompt": 3}', r"Expected `str`, got `int` - at `\$.prompt`; write an object"),
        ('{"prompt": ""}', "length >= 1"),
        ('{"prompt": "x", "sed": 1}', "unknown field `sed`"),
        ('{"prompt": "x", "\\u001b[31m": 1}', r"unknown field `\?\[31m`"),
        ('{"prompt": "x", "seed": -1}', "seed"),
        ('{"prompt": "x", "seed": 9223372036854775808}', "seed"),
        ('{"prompt": "x", "seed": true}', "seed"),
        ('{"prompt": "x", "domain": 1}', "domain"),
        ('{"prompt": "x", "drafter": "ngram"}', "drafter"),
        (r'{"prompt": "\ud800"}', "truncated"),
        ('{"prompt": "\ud800"}', "surrogates not allowed"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str) -> None:
    with pytest.raises(PromptError, match=message) as error:
        parse(line, "file, line 2")
    assert str(error.value).startswith("file, line 2: ")


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(PromptError, match="has no prompts"):
        read_file(tmp_path / "empty")
    with pytest.raises(PromptError, match="cannot read"):
        read_file(tmp_path / "absent")
