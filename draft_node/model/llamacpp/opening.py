"""Opens llama.cpp's server: a running one by its URL, or one in this process for a GGUF file. Loads no torch."""

import os
import re
import secrets
from collections.abc import Callable, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from draft_node.config import DraftConfig
from draft_node.model.drafting import Drafting
from draft_node.model.llamacpp.drafter import PREFILL_CHUNK, LlamaDrafter
from draft_node.model.llamacpp.server import KEY_VARIABLE, Server
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.trial import Trial
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, ConfigError, NotInstalled
from goodspeed.wire.endpoints import is_loopback

MAX_SLOTS = 16
"""Most texts whose keys and values a server in this process keeps; they share CONTEXT tokens."""

CONTEXT = 8192
"""Tokens of keys and values of all texts together in this process; the longest text is the model's own context."""


def make_drafting(config: DraftConfig, vocabulary: Vocabulary) -> Drafting:
    """Connects to the server of --model, or starts it; a named error if it cannot serve this tokenizer."""
    if config.model.endswith(".gguf"):
        server = in_process(Path(config.model), config.threads or 1, min(config.max_sessions, MAX_SLOTS))
    else:
        server = at_url(config.model, os.environ, trusted_network=config.trusted_network)
    try:
        server.check(vocabulary)
    except BaseException:
        server.end()
        raise
    return Drafting(LlamaDrafter(server, vocabulary.num_tokens, Constraints(vocabulary, Trial(vocabulary))))


def at_url(url: str, environment: Mapping[str, str], *, trusted_network: bool) -> Server:
    """Returns a client of the server at http://HOST:PORT; ConfigError for another URL, or one beyond loopback."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, 80 if parts.port is None else parts.port
    except ValueError:  # no address, or no number
        parts, host, port = urlsplit("http:"), None, 0
    if (
        parts.scheme != "http"
        or not host
        or not port
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
        or "@" in url
    ):
        raise ConfigError(f"--model {parts.scheme}://...: write http://HOST:PORT, and a key into {KEY_VARIABLE}")
    if not trusted_network and not is_loopback(f"tcp://[{host}]:{port}"):
        what = "users' texts would go there unencrypted; use loopback (an SSH tunnel ends there)"
        raise ConfigError(f"--model {url} is beyond this machine: {what}, or --trusted-network")
    key = environment.get(KEY_VARIABLE)
    if key and not re.fullmatch(r"[!-~]{1,512}", key):
        raise ConfigError(f"{KEY_VARIABLE} holds no key; at most 512 printable ASCII characters, no blanks")
    return Server(url, lambda timeout_s: HTTPConnection(host, port, timeout=timeout_s), key or None)


class _InProcess(Server):
    """A server in this process. It listens on loopback, at a port that the system chose, with a key of its own."""

    def __init__(self, name: str, params: Any, start: Callable[[Any], Any]) -> None:
        params.hostnames, params.port, key = ["127.0.0.1"], 0, secrets.token_hex(32)
        params.api_keys = [key]
        self._running = start(params)
        host, port = self._running.listening_address.removeprefix("http://").split(":")
        super().__init__(name, lambda timeout_s: HTTPConnection(host, int(port), timeout=timeout_s), key)

    def end(self) -> None:
        super().end()
        self._running = None  # waits for its threads


def in_process(path: Path, num_threads: int, num_slots: int) -> Server:
    """Loads a GGUF file; CheckpointError if it cannot be loaded, NotInstalled without llama.cpp."""
    try:
        import xllamacpp
    except ImportError:
        raise NotInstalled("--model FILE.gguf", "llamacpp", "xllamacpp") from None
    try:
        with path.open("rb") as file:
            is_gguf = file.read(4) == b"GGUF"
    except OSError as error:
        raise CheckpointError(f"--model {path}: it cannot be read ({error.strerror}); give a GGUF file") from None
    if not is_gguf:
        raise CheckpointError(f"--model {path}: it is no GGUF file; get it again, or give another one")
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_parallel, params.kv_unified, params.n_ctx = num_slots, True, CONTEXT
    params.n_batch = params.n_ubatch = PREFILL_CHUNK
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = num_threads
    params.n_threads_http = num_slots + 2  # a connection occupies one
    params.cache_ram_mib = 0
    params.warmup = False
    params.verbosity = -1
    try:
        server = _InProcess(str(path), params, xllamacpp.Server)
    except RuntimeError:
        raise CheckpointError(
            f"--model {path}: llama.cpp cannot load it; `llama-cli` tells why, or get it again"
        ) from None
    server.num_cells = CONTEXT
    return server
