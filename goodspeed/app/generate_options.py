"""Settings of `goodspeed generate`, with their constraint, biases and stop tokens parsed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from math import nan
from pathlib import Path

from goodspeed.errors import ConfigError, reason
from goodspeed.serving import options
from goodspeed.serving.config import option
from goodspeed.serving.defaults import SamplingRequest
from goodspeed.wire.fields import MAX_BIASES, MAX_CONSTRAINT_CHARS, MAX_CONTEXT, ConstraintKind
from goodspeed.wire.generation import Constraint, TokenBias

MAX_BIAS = 100.0
MAX_DIGITS = 10


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(options.ModelSettings, options.SamplingSettings):
    """Settings of `goodspeed generate`; see its --help."""

    model: str = option("tiny-target", options.MODEL, options.NAMES, metavar="NAME")
    prompt: str = option(MISSING, "text", "the text to go on from", metavar="TEXT")
    chat: bool = option(False, "text", "put the prompt through the tokenizer's chat template, as one user message")
    max_tokens: int = option(150, "text", "most tokens generated", minimum=1, maximum=MAX_CONTEXT)
    seed: int = options.seed("text", "the same seed gives the same text", default=0)
    logit_bias: tuple[str, ...] = option(
        (), "text", "added to the logit of the token of this id, -100 to 100; may be repeated", metavar="ID=BIAS"
    )
    min_tokens: int = option(0, "text", "tokens before which nothing ends the text", minimum=0, maximum=MAX_CONTEXT)
    stop_token_id: tuple[str, ...] = option(
        (), "text", "token that ends the text, beside the model's own; may be repeated", metavar="ID"
    )
    json_schema: str | None = option(None, "constraint", "a file with the JSON schema of the text", metavar="FILE")
    json_object: bool = option(False, "constraint", "the text is one JSON object")
    regex: str | None = option(None, "constraint", "the text matches this, as a whole", metavar="REGEX")
    choice: tuple[str, ...] = option(
        (), "constraint", "the text is this, or another choice; may be repeated", metavar="TEXT"
    )
    grammar: str | None = option(
        None, "constraint", "a file with a grammar of the text, in Lark's syntax", metavar="FILE"
    )
    generation_config: str = option(
        "auto",
        options.MODEL,
        "auto: options left out come from the checkpoint's generation_config.json (with --chat "
        "chat_generation_config.json, too); none: temperature 1, top-k and top-p off, no stop strings",
        choices=("auto", "none"),
    )

    def constraint(self) -> Constraint | None:
        """Returns the constraint; ConfigError for an unreadable file or for two constraints."""
        given: Mapping[ConstraintKind, str | None] = {
            "json_schema": None if self.json_schema is None else _read("--json-schema", self.json_schema),
            "json_object": "" if self.json_object else None,
            "regex": self.regex,
            "choice": json.dumps(list(self.choice)) if self.choice else None,
            "grammar": None if self.grammar is None else _read("--grammar", self.grammar),
        }
        found = [Constraint(kind, source) for kind, source in given.items() if source is not None]
        if len(found) > 1:
            names = " and ".join(flag(one.kind) for one in found)
            raise ConfigError(f"{names} each constrain the text; give one of them")
        return found[0] if found else None

    def sampling_request(self, vocab_size: int) -> SamplingRequest:
        """Returns the sampling options; ConfigError for a bad one, or a token id not below vocab_size."""
        biases = read_biases(self.logit_bias, vocab_size)
        asked = SamplingRequest(temperature=self.temperature, seed=self.seed, logit_bias=biases)
        return asked.filled(self.node_sampling)


def flag(kind: ConstraintKind) -> str:
    """Returns the option for a constraint of this kind."""
    return "--" + kind.replace("_", "-")


def _read(name: str, path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MAX_CONSTRAINT_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} {path}: it cannot be read ({reason(error)}); give a text file") from error
    if len(text) > MAX_CONSTRAINT_CHARS:
        raise ConfigError(f"{name} {path}: it has more than {MAX_CONSTRAINT_CHARS} characters; give a smaller one")
    return text


def read_biases(given: Sequence[str], vocab_size: int) -> tuple[TokenBias, ...]:
    """Parses `--logit-bias`; ConfigError, with the option's name, for a bad bias or token id."""
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
        raise ConfigError(f"--logit-bias is given for {len(biases)} tokens; give at most {MAX_BIASES}")
    return tuple(TokenBias(token, bias) for token, bias in biases.items())


def read_stop_ids(given: Sequence[str], vocab_size: int) -> tuple[int, ...]:
    """Parses `--stop-token-id`; ConfigError, with the option's name, for a bad token id."""
    return tuple(_token_id("--stop-token-id", each, vocab_size) for each in given)


def _token_id(name: str, given: str, vocab_size: int) -> int:
    if not given.isdecimal() or not given.isascii() or len(given) > MAX_DIGITS or int(given) >= vocab_size:
        raise ConfigError(f"{name} {given[:40]!r}: give the id of a token, 0 to {vocab_size - 1}")
    return int(given)
