"""Options of `goodspeed generate` for constraints and rules of logits: what they ask for, and errors that name them."""

import argparse
import json

import pytest

from goodspeed.app import generate
from goodspeed.app.generate_options import GenerateConfig, read_biases, read_stop_ids
from goodspeed.errors import ConfigError
from goodspeed.serving.config import from_namespace
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS
from goodspeed.wire.generation import Constraint, TokenBias


def parsed(*arguments) -> GenerateConfig:
    parser = argparse.ArgumentParser()
    generate.add_arguments(parser)
    return from_namespace(GenerateConfig, parser.parse_args(["--prompt", "x", *map(str, arguments)]))


def asked(*arguments):
    return parsed(*arguments).constraint()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "form"
    path.write_text('{"type": "null"}', "utf-8")
    return path


def test_each_constraint(file):
    assert asked() is None
    assert asked("--json-schema", file) == Constraint("json_schema", '{"type": "null"}')
    assert asked("--grammar", file) == Constraint("grammar", '{"type": "null"}')
    assert asked("--json-object") == Constraint("json_object")
    assert asked("--regex", "[ab]+") == Constraint("regex", "[ab]+")
    assert asked("--choice", "yes", "--choice", "no") == Constraint("choice", json.dumps(["yes", "no"]))


def test_what_cannot_be_asked_for_is_named(file):
    with pytest.raises(ConfigError, match="--json-object and --regex each constrain"):
        asked("--json-object", "--regex", "a")
    with pytest.raises(ConfigError, match=r"--grammar .*missing: it cannot be read"):
        asked("--grammar", file.with_name("missing"))
    file.write_text("a" * (MAX_CONSTRAINT_CHARS + 1), "utf-8")
    with pytest.raises(ConfigError, match=r"--json-schema .* has more than 65536 characters"):
        asked("--json-schema", file)


def test_rules_of_logits_are_read() -> None:
    config = parsed(
        *("--sampling", "presence_penalty=0.5,frequency_penalty=-1,repetition_penalty=1.1,min_p=0.05"),
        *("--logit-bias", "7=-100", "--logit-bias", "3=0.5", "--min-tokens", "4", "--stop-token-id", "9"),
    )
    asked = config.sampling_request(10)
    assert (asked.presence_penalty, asked.frequency_penalty, asked.repetition_penalty) == (0.5, -1.0, 1.1)
    assert (asked.min_p, asked.logit_bias) == (0.05, (TokenBias(7, -100.0), TokenBias(3, 0.5)))
    assert read_stop_ids(config.stop_token_id, 10) == (9,)


@pytest.mark.parametrize("given", ["7", "7=", "7=x", "7=101", "7=nan", "7=inf", "=1", "x=1", "-1=1", "10=1", "²=1"])
def test_what_is_no_bias_is_refused_by_name(given: str) -> None:
    with pytest.raises(ConfigError, match="--logit-bias"):
        read_biases([given], 10)


@pytest.mark.parametrize("given", ["", "x", "-1", "10", "1.5", "9" * 5000])
def test_what_is_no_token_is_refused_by_name(given: str) -> None:
    with pytest.raises(ConfigError, match=r"--stop-token-id .*: give the id of a token, 0 to 9"):
        read_stop_ids([given], 10)


def test_there_are_only_so_many_biases() -> None:
    with pytest.raises(ConfigError, match="1025 tokens; give at most 1024"):
        read_biases([f"{token}=1" for token in range(1025)], 5000)
