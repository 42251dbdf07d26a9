"""Reads the options of `goodspeed generate` that name tokens by their ids."""

from collections.abc import Sequence
from math import nan

from goodspeed.errors import ConfigError
from goodspeed.wire.fields import MAX_BIASES
from goodspeed.wire.generation import TokenBias

MAX_BIAS = 100.0
MAX_DIGITS = 10


def read_biases(given: Sequence[str], vocab_size: int) -> tuple[TokenBias, ...]:
    """Reads `--logit-bias`; ConfigError, which names the option, for what is no bias of a token below vocab_size."""
    biases: dict[int, float] = {}
    for each in given:
        token, _, bias = each.partition("=")
        try:
            number = float(bias)
        except ValueError:
            number = nan
        if not abs(number) <= MAX_BIAS:
            raise ConfigError(f"--logit-bias {each[:40]!r}: give ID=BIAS, a bias from -{MAX_BIAS:g} to {MAX_BIAS:g}")
        biases[_token_id("--logit-bias", token, vocab_size)] = number
    if len(biases) > MAX_BIASES:
        raise ConfigError(f"--logit-bias is given for {len(biases)} tokens; {MAX_BIASES} are the most")
    return tuple(TokenBias(token, bias) for token, bias in biases.items())


def read_stop_ids(given: Sequence[str], vocab_size: int) -> tuple[int, ...]:
    """Reads `--stop-token-id`; ConfigError, which names the option, for what is no id below vocab_size."""
    return tuple(_token_id("--stop-token-id", each, vocab_size) for each in given)


def _token_id(name: str, given: str, vocab_size: int) -> int:
    if not given.isdecimal() or not given.isascii() or len(given) > MAX_DIGITS or int(given) >= vocab_size:
        raise ConfigError(f"{name} {given[:40]!r}: give the id of a token, 0 to {vocab_size - 1}")
    return int(given)
