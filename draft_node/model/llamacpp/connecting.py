"""Connects to a running server of llama.cpp by its URL. Loads no torch."""

import os
import re
from collections.abc import Mapping

from draft_node.config import DraftConfig
from draft_node.model.drafting import Drafting
from draft_node.model.llamacpp.drafter import LlamaDrafter
from draft_node.model.llamacpp.server import KEY_VARIABLE, Server
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.trial import Trial
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConfigError
from goodspeed.wire.endpoints import is_loopback

URL = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::([0-9]{1,5}))?/?", re.ASCII)


def make_drafting(config: DraftConfig, vocabulary: Vocabulary) -> Drafting:
    """Connects to the server of --model; a named error if it cannot serve this tokenizer."""
    server = at_url(config.model, os.environ, trusted_network=config.trusted_network)
    try:
        num_tokens = server.check(vocabulary)
    except BaseException:
        server.close()
        raise
    return Drafting(LlamaDrafter(server, num_tokens, Constraints(vocabulary, Trial(vocabulary))))


def at_url(url: str, environment: Mapping[str, str], *, trusted_network: bool) -> Server:
    """Returns a client of the server at http://HOST:PORT; ConfigError for another form of URL.

    trusted_network: the server may be beyond loopback, else that is a ConfigError, too.
    """
    found = URL.fullmatch(url)
    host, port = (found[1].strip("[]"), int(found[2] or 80)) if found else ("", 0)
    if not 0 < port < 1 << 16:
        scheme = url.partition(":")[0]  # the rest may hold a password
        raise ConfigError(f"--model {scheme}://...: write http://HOST:PORT, and a key into {KEY_VARIABLE}")
    if not trusted_network and not is_loopback(f"tcp://[{host}]:{port}"):
        what = "users' texts would go there unencrypted; use loopback (an SSH tunnel ends there)"
        raise ConfigError(f"--model {url} is beyond this machine: {what}, or --trusted-network")
    key = environment.get(KEY_VARIABLE)
    if key and not re.fullmatch(r"[!-~]{1,512}", key):
        raise ConfigError(f"{KEY_VARIABLE} holds no key; at most 512 printable ASCII characters, no blanks")
    return Server(url, host, port, key or None)
