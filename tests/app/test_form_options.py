"""Options for the form of a text, as `goodspeed generate` has them: what they ask for, and errors that name them."""

import argparse
import json

import pytest

from goodspeed.app import generate
from goodspeed.errors import ConfigError
from goodspeed.serving.config import from_namespace
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS
from goodspeed.wire.generation import Constraint


def asked(*arguments):
    parser = argparse.ArgumentParser()
    generate.add_arguments(parser)
    config = from_namespace(generate.GenerateConfig, parser.parse_args(["--prompt", "x", *map(str, arguments)]))
    return generate.constraint_of(config)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "form"
    path.write_text('{"type": "null"}', "utf-8")
    return path


def test_each_form(file):
    assert asked() is None
    assert asked("--json-schema", file) == Constraint("json_schema", '{"type": "null"}')
    assert asked("--grammar", file) == Constraint("grammar", '{"type": "null"}')
    assert asked("--json-object") == Constraint("json_object")
    assert asked("--regex", "[ab]+") == Constraint("regex", "[ab]+")
    assert asked("--choice", "yes", "--choice", "no") == Constraint("choice", json.dumps(["yes", "no"]))


def test_what_cannot_be_asked_for_is_named(file):
    with pytest.raises(ConfigError, match="--json-object and --regex each say"):
        asked("--json-object", "--regex", "a")
    with pytest.raises(ConfigError, match=r"--grammar .*missing: it cannot be read"):
        asked("--grammar", file.with_name("missing"))
    file.write_text("a" * (MAX_CONSTRAINT_CHARS + 1), "utf-8")
    with pytest.raises(ConfigError, match=r"--json-schema .* has more than 65536 characters"):
        asked("--json-schema", file)
