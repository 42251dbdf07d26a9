"""Checks a draft node's settings before it loads the model and torch. Imports no torch.

Loading takes seconds to minutes; a port in use or an unreadable key should fail sooner.
"""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from draft_node.config import NAME, DraftConfig, default_name
from goodspeed.engine.model_files.finding import find_tokenizer
from goodspeed.errors import ConfigError
from goodspeed.serving.events import QUIET, Reporter
from goodspeed.serving.prompts import Prompt, read_file
from goodspeed.serving.running import bind_http, find_model, warn_trusted_network
from goodspeed.wire.endpoints import parse_endpoint
from goodspeed.wire.keys import read_draft_pair, read_verify_key
from goodspeed.wire.zmq.authentication import ClientKeys, checked_pair

if TYPE_CHECKING:  # HTTP is imported only if it is served
    from goodspeed.serving.web.address import BoundAddress


@dataclass(frozen=True)
class Found:
    """Results of the checks: keys read, HTTP address bound, prompts read."""

    config: DraftConfig  # with the name from the key
    keys: ClientKeys | None  # this node's and the verify node's; None: the wire uses no keys
    http: "BoundAddress | None"  # None without --http
    prompts: list[Prompt]  # of the file of --prompts


def check(config: DraftConfig, reporter: Reporter = QUIET) -> Found:
    """Checks everything possible without torch; raises the named error of the first fault.

    Downloads a model from the hub.
    """
    keys = read_keys(config)
    if keys is not None:
        config = _named_by_key(config, keys.pair.name or "")
    if not re.fullmatch(NAME, config.name):
        raise ConfigError(f"--name {config.name!r} must be 1 to 64 letters, digits, dots, dashes or underscores")
    for endpoint in config.verify:
        parse_endpoint(endpoint, config.trusted_network or config.key is not None, "connecting")
    if config.trusted_network:
        warn_trusted_network(", ".join(config.verify))
    prompts = [] if config.prompts is None else read_file(config.prompts)
    if config.tokenizer is not None:
        find_tokenizer(config.tokenizer, reporter.say)
    if config.http is None and config.prompts is None:
        raise ConfigError("give --http HOST:PORT for users, or --prompts FILE --json for a file's prompts")
    http = bind_http(config.http, config.api_key)
    if config.has_weights:
        find_model(config.model, reporter, config.device, config.dtype, engine=config.engine)
    return Found(config, keys, http, prompts)


def read_keys(config: DraftConfig) -> ClientKeys | None:
    """Reads this node's key and the verify node's; None: the wire uses no keys."""
    if config.key is None or config.verify_key is None:
        return None
    return ClientKeys(checked_pair(read_draft_pair(config.key)), read_verify_key(config.verify_key).public_key)


def _named_by_key(config: DraftConfig, name: str) -> DraftConfig:
    """Returns the config with the key's name; ConfigError if --name differs from it."""
    if config.name not in (name, default_name()):
        raise ConfigError(f"--name {config.name!r} is not what --key {config.key} is made for, {name!r}; leave it out")
    return replace(config, name=name)
