"""Opens llama.cpp's server: a running one by its URL, or one in this process for a GGUF file. Loads no torch."""

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from draft_node.config import DraftConfig
from draft_node.model.drafting import Drafting
from draft_node.model.llamacpp.drafter import PREFILL_CHUNK, LlamaDrafter
from draft_node.model.llamacpp.server import KEY_VARIABLE, Server
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.trial import Trial
from goodspeed.engine import sources
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, ConfigError, NotInstalled, reason
from goodspeed.wire.endpoints import is_loopback

MAX_SLOTS = 16
"""Most texts whose keys and values a server in this process keeps; they share CONTEXT tokens."""

CONTEXT = 8192
"""Tokens of keys and values of all texts together in this process; the longest text is the model's own context."""

URL = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::([0-9]{1,5}))?/?", re.ASCII)


def make_drafting(config: DraftConfig, vocabulary: Vocabulary) -> Drafting:
    """Connects to the server of --model, or starts it; a named error if it cannot serve this tokenizer."""
    if config.is_url:
        server = at_url(config.model, os.environ, trusted_network=config.trusted_network)
    else:
        server = in_process(
            sources.find_source(config.model).path, config.threads or 1, min(config.max_sessions, MAX_SLOTS)
        )
    try:
        num_tokens = server.check(vocabulary)
    except BaseException:
        server.close()
        raise
    return Drafting(LlamaDrafter(server, num_tokens, Constraints(vocabulary, Trial(vocabulary))))


def at_url(url: str, environment: Mapping[str, str], *, trusted_network: bool) -> Server:
    """Returns a client of the server at http://HOST:PORT; ConfigError for another URL, or one beyond loopback."""
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


def in_process(path: Path, num_threads: int, num_slots: int) -> Server:
    """Loads a GGUF file; CheckpointError if it cannot be loaded, NotInstalled without llama.cpp.

    The server listens on loopback, at a port that the system chose, with a key of its own.
    """
    try:
        import xllamacpp
    except ImportError:
        raise NotInstalled("--model FILE.gguf", "llamacpp", "xllamacpp") from None
    try:
        with path.open("rb") as file:
            is_gguf = file.read(4) == b"GGUF"
    except OSError as error:
        raise CheckpointError(f"--model {path}: it cannot be read ({reason(error)}); give a GGUF file") from None
    if not is_gguf:
        raise CheckpointError(f"--model {path}: it is no GGUF file; get it again, or give another one")
    params, key = xllamacpp.CommonParams(), secrets.token_hex(32)
    params.model.path = str(path)
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [key]
    params.n_parallel, params.kv_unified, params.n_ctx = num_slots, True, CONTEXT
    params.n_batch = params.n_ubatch = PREFILL_CHUNK
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = num_threads
    params.n_threads_http = num_slots + 2  # a connection occupies one
    params.cache_ram_mib, params.warmup, params.verbosity = 0, False, -1
    try:
        running = xllamacpp.Server(params)
    except RuntimeError:
        raise CheckpointError(
            f"--model {path}: llama.cpp cannot load it; `llama-cli` tells why, or get it again"
        ) from None
    port = int(running.listening_address.rpartition(":")[2])
    return Server(str(path), "127.0.0.1", port, key, running, CONTEXT)
