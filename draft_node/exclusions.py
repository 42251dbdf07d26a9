"""Refuses options of the draft node that exclude each other: none is ignored in silence."""

from collections.abc import Container, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from goodspeed.errors import ConfigError
from goodspeed.serving.options import NO_MODEL

if TYPE_CHECKING:
    from draft_node.config import DraftConfig

OF_PROMPTS = ("prompts", "temperature", "seed", "tier")
"""Settings that requests over HTTP bring themselves."""

OF_CHATS = ("tool_parser", "reasoning_parser", "chat_template_kwargs")
"""Settings that count for chats over HTTP only."""

OF_MODEL = (
    *("fallback", "device", "dtype", "memory_fraction", "threads"),
    *("preset", "proposal"),
)
"""Settings that a node without a model cannot obey."""


def check_together(config: "DraftConfig") -> None:
    """ConfigError for options that exclude each other, or need one that is not there."""
    _check_model(config)
    _check_history(config)
    if config.http is None and config.api_key is not None:
        raise ConfigError("--api-key is for HTTP clients; give --http HOST:PORT too")
    if config.http is not None:
        _check_that_prompts_are_left_out(config)
    else:
        _check_that_chats_are_left_out(config)


def _check_model(config: "DraftConfig") -> None:
    """Refuses options that need a model without one, and a tokenizer beside a model's own."""
    if config.has_model:
        if config.tokenizer is not None:
            raise ConfigError(
                f"--tokenizer is for --model {NO_MODEL}; {config.model} brings its own tokenizer, so leave it out"
            )
        return
    if config.tokenizer is None:
        what = "a node without a model still encodes the target's tokens"
        raise ConfigError(f"--model {NO_MODEL} needs --tokenizer NAME|FOLDER: {what}")
    for flag in _given(config, OF_MODEL):
        raise ConfigError(f"{flag} needs a draft model; leave it out, or give a model with --model")
    if config.drafter == "model":
        raise ConfigError("--drafter model needs a draft model; give one with --model, or --drafter ngram")


def _check_history(config: "DraftConfig") -> None:
    """Refuses a history of users who cannot be told apart, and a file for no history."""
    if config.history == "user" and config.api_key is None:
        raise ConfigError(
            "--history user needs --api-key FILE: without keys no user is told from another; give --history node or off"
        )
    if config.history == "off" and config.history_file is not None:
        raise ConfigError("--history-file keeps a history, and --history off has none; drop one of them")


def _check_that_chats_are_left_out(config: "DraftConfig") -> None:
    """On the console there are no tools, and all of a text is shown."""
    for flag in _given(config, OF_CHATS):
        raise ConfigError(f"{flag} is for chats over HTTP; give --http HOST:PORT too")


def _check_that_prompts_are_left_out(config: "DraftConfig") -> None:
    """HTTP requests say all this themselves."""
    for flag in _given(config, OF_PROMPTS):
        raise ConfigError(f"{flag} is for prompts, and --http serves requests, which say it themselves; drop one")


def _given(config: "DraftConfig", names: Container[str]) -> Iterator[str]:
    """The options among these settings that are not at their default."""
    for entry in fields(config):
        if entry.name in names and getattr(config, entry.name) != entry.default:
            yield "--" + entry.name.replace("_", "-")
