"""Options for rules of logits, as `goodspeed generate` has them: what they say, and errors that name them."""

import argparse

import pytest

from goodspeed.app import generate, token_options
from goodspeed.errors import ConfigError
from goodspeed.serving.config import from_namespace
from goodspeed.wire.generation import TokenBias


def parsed(*arguments: str) -> generate.GenerateConfig:
    parser = argparse.ArgumentParser()
    generate.add_arguments(parser)
    return from_namespace(generate.GenerateConfig, parser.parse_args(["--prompt", "x", *arguments]))


def test_what_is_left_out_is_left_to_the_models_makers() -> None:
    config = parsed()
    assert (config.repetition_penalty, config.min_p, config.logit_bias, config.stop_token_id) == (None, None, (), ())


def test_all_of_them_are_read() -> None:
    config = parsed(
        *("--presence-penalty", "0.5", "--frequency-penalty", "-1", "--repetition-penalty", "1.1", "--min-p", "0.05"),
        *("--logit-bias", "7=-100", "--logit-bias", "3=0.5", "--min-tokens", "4", "--stop-token-id", "9"),
    )
    asked = generate._sampling_request(config, 10)
    assert (asked.presence_penalty, asked.frequency_penalty, asked.repetition_penalty) == (0.5, -1.0, 1.1)
    assert (asked.min_p, asked.logit_bias) == (0.05, (TokenBias(7, -100.0), TokenBias(3, 0.5)))
    assert token_options.read_stop_ids(config.stop_token_id, 10) == (9,)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--min-p", "1.5"), "--min-p 1.5 is too large; it must be at most 1"),
        (("--presence-penalty", "-2.1"), "--presence-penalty -2.1 is too small"),
        (("--repetition-penalty", "0"), "--repetition-penalty 0.0 is too small"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments: tuple[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parsed(*arguments)


@pytest.mark.parametrize("given", ["7", "7=", "7=x", "7=101", "7=nan", "7=inf", "=1", "x=1", "-1=1", "10=1", "²=1"])
def test_what_is_no_bias_is_refused_by_name(given: str) -> None:
    with pytest.raises(ConfigError, match="--logit-bias"):
        token_options.read_biases([given], 10)


@pytest.mark.parametrize("given", ["", "x", "-1", "10", "1.5", "9" * 5000])
def test_what_is_no_token_is_refused_by_name(given: str) -> None:
    with pytest.raises(ConfigError, match=r"--stop-token-id .*: give the id of a token, 0 to 9"):
        token_options.read_stop_ids([given], 10)


def test_there_are_only_so_many_biases() -> None:
    with pytest.raises(ConfigError, match="1025 tokens; 1024 are the most"):
        token_options.read_biases([f"{token}=1" for token in range(1025)], 5000)
