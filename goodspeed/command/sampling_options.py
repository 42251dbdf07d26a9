"""Sampling options for the settings of several commands.

An option whose default is None is left to the checkpoint, or to the node that is asked; `shown` says so in the help.
Knows nothing about sampling.
"""

from collections.abc import Sequence
from math import nan
from typing import Any

from goodspeed.command.config import option
from goodspeed.errors import ConfigError
from goodspeed.wire.fields import MAX_BIASES
from goodspeed.wire.generation import TokenBias

MAX_SEED = (1 << 63) - 1
MAX_BIAS = 100.0
MAX_DIGITS = 10


def temperature(*, group: str, default: float | None = None, shown: str | None = None, maximum: float = 100.0) -> Any:
    return option(default, minimum=0.0, maximum=maximum, shown=shown, group=group, help="0 is greedy", metavar="T")


def top_k(*, group: str, default: int | None = None, shown: str | None = None) -> Any:
    what = "sample among the K likeliest; 0 is off"
    return option(default, minimum=0, maximum=(1 << 31) - 1, shown=shown, group=group, help=what, metavar="K")


def top_p(*, group: str, default: float | None = None, shown: str | None = None) -> Any:
    what = "sample among the likeliest that make P"
    return option(default, minimum=1e-6, maximum=1.0, shown=shown, group=group, help=what, metavar="P")


def presence_penalty(*, group: str, shown: str) -> Any:
    what = "taken from the logit of each token that the output has"
    return option(None, minimum=-2.0, maximum=2.0, shown=shown, group=group, help=what, metavar="X")


def frequency_penalty(*, group: str, shown: str) -> Any:
    what = "taken from the logit of each token for each time that the output has it"
    return option(None, minimum=-2.0, maximum=2.0, shown=shown, group=group, help=what, metavar="X")


def repetition_penalty(*, group: str, shown: str) -> Any:
    what = "makes what prompt or output have less likely; 1 is off"
    return option(None, minimum=0.01, maximum=100.0, shown=shown, group=group, help=what, metavar="X")


def min_p(*, group: str, shown: str) -> Any:
    what = "sample among what has this part of the likeliest token's probability; 0 is off"
    return option(None, minimum=0.0, maximum=1.0, shown=shown, group=group, help=what, metavar="P")


def logit_bias(*, group: str) -> Any:
    what = "added to the logit of the token of this id, -100 to 100; may be repeated"
    return option((), shown="none", group=group, help=what, metavar="ID=BIAS")


def stop_token_id(*, group: str) -> Any:
    what = "token that ends the text, beside the model's own; may be repeated"
    return option((), shown="none", group=group, help=what, metavar="ID")


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
            raise ConfigError(f"--logit-bias {each!r}: give ID=BIAS, a bias from -{MAX_BIAS:g} to {MAX_BIAS:g}")
        biases[_token_id("--logit-bias", token, vocab_size)] = number
    if len(biases) > MAX_BIASES:
        raise ConfigError(f"--logit-bias is given for {len(biases)} tokens; {MAX_BIASES} are the most")
    return tuple(TokenBias(token, bias) for token, bias in biases.items())


def read_stop_ids(given: Sequence[str], vocab_size: int) -> tuple[int, ...]:
    """Reads `--stop-token-id`; ConfigError, which names the option, for what is no id below vocab_size."""
    return tuple(_token_id("--stop-token-id", each, vocab_size) for each in given)


def _token_id(name: str, given: str, vocab_size: int) -> int:
    if not given.isdecimal() or not given.isascii() or len(given) > MAX_DIGITS or int(given) >= vocab_size:
        raise ConfigError(f"{name} {given!r}: give the id of a token, 0 to {vocab_size - 1}")
    return int(given)


def seed(*, group: str, help: str, default: int | None = None, shown: str | None = None) -> Any:
    return option(default, minimum=0, maximum=MAX_SEED, shown=shown, group=group, help=help, metavar="N")
