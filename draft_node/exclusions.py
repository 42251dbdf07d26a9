"""Refuses options of the draft node that exclude each other, so that no option is silently ignored."""

from collections.abc import Container, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from goodspeed.embedded.models import is_gguf
from goodspeed.errors import ConfigError
from goodspeed.serving.options import NO_MODEL

if TYPE_CHECKING:
    from draft_node.config import DraftConfig

OF_PROMPTS = ("prompts", "temperature")
"""Settings that HTTP requests specify themselves."""

OF_HTTP = (
    "api_key",
    "served_model_name",
    "tool_parser",
    "reasoning_parser",
    "chat_template_kwargs",
    "refuse_control_tokens",
    "drain_timeout_s",
)
"""Settings for requests over HTTP only."""

OF_WEIGHTS = ("engine", "device", "dtype", "memory_fraction", "preset")
"""Settings that concern only a draft model in this process."""

OF_MODEL = (*OF_WEIGHTS, "threads")
"""Settings that need a draft model."""


def check_together(config: "DraftConfig") -> None:
    """Raises ConfigError for options that exclude each other, or that need a missing option."""
    _check_model(config)
    _check_history(config)
    for flag in _given(config, OF_HTTP) if config.http is None else ():
        raise ConfigError(f"{flag} is for requests over HTTP; give --http HOST:PORT too")
    for flag in _given(config, OF_PROMPTS) if config.http is not None else ():
        what = "is for prompts, but --http serves requests, and each sets this itself"
        instead = ", or give --sampling temperature=T for those that do not" if flag == "--temperature" else ""
        raise ConfigError(f"{flag} {what}; drop one{instead}")


def _check_model(config: "DraftConfig") -> None:
    """Refuses model options without a model, and a tokenizer in addition to a model's own."""
    if config.has_model and not config.has_weights:
        _check_elsewhere(config)
        return
    if config.has_model:
        if config.tokenizer is not None and not is_gguf(config.model):
            raise ConfigError(
                f"--tokenizer is for --model {NO_MODEL}, FILE.gguf, http://HOST:PORT and source:NAME; {config.model} "
                "brings its own tokenizer, so leave it out"
            )
        return
    if config.tokenizer is None:
        what = "name the target's, because the node still encodes prompts"
        raise ConfigError(f"--model {NO_MODEL} needs --tokenizer NAME|FOLDER|FILE: {what}")
    for flag in _given(config, OF_MODEL):
        raise ConfigError(f"{flag} needs a draft model; leave it out, or give a model with --model")
    if config.drafter == "model":
        raise ConfigError("--drafter model needs a draft model; give one with --model, or --drafter ngram")


def _check_elsewhere(config: "DraftConfig") -> None:
    """Refuses what llama.cpp's server or a draft source cannot do, or has settings of its own for."""
    what = "a draft source" if config.is_source else "llama.cpp's server"
    if config.tokenizer is None:
        raise ConfigError(f"--model {config.model} needs --tokenizer NAME|FOLDER|FILE, the target's")
    weights = "give the draft model itself: a GGUF file, a folder or a hub name"
    for flag in _given(config, OF_WEIGHTS):
        raise ConfigError(f"{flag} is not for {what}; leave it out, or {weights}")
    if config.verification == "ratio":
        needs = f"--verification ratio needs the draft model's whole distribution, which {what} does not give"
        raise ConfigError(f"{needs}; leave it out, or {weights}")
    if config.threads is not None:
        instead = "leave it out" if config.is_source else "start llama-server with --threads instead"
        raise ConfigError(f"--threads is for a model in this process; {instead}")


def _check_history(config: "DraftConfig") -> None:
    """Refuses a history per user if users cannot be distinguished, and texts to draft from that nothing drafts from."""
    for flag in _given(config, ("corpus", "history_file")) if config.http is None else ():
        if config.drafter in ("model", "none"):
            raise ConfigError(f"{flag} is for n-grams, but --drafter {config.drafter} uses none; drop one of them")
    if config.history == "user" and config.api_key is None:
        raise ConfigError(
            "--history user needs --api-key FILE: users are known by their keys; or give --history node or off"
        )
    if config.history == "off" and config.history_file is not None:
        raise ConfigError("--history-file saves a history, but --history off keeps none; drop one of them")


def _given(config: "DraftConfig", names: Container[str]) -> Iterator[str]:
    """Yields the options among these settings that differ from their default."""
    for entry in fields(config):
        if entry.name in names and getattr(config, entry.name) != entry.default:
            yield "--" + entry.name.replace("_", "-")
