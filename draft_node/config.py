"""The draft node's settings; those made with `option` are also options of `goodspeed-draft`.

Options that exclude each other are refused, so that none is silently ignored.
"""

import os
import re
import socket
from collections.abc import Container, Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, get_args

import msgspec

from draft_node.parsing.formats import THINKING, TOOLS
from goodspeed.embedded.models import is_gguf
from goodspeed.engine.model_files import names
from goodspeed.engine.model_files.names import NO_MODEL, SOURCE
from goodspeed.errors import ConfigError
from goodspeed.serving import options
from goodspeed.serving.config import option
from goodspeed.serving.options import DRAFTING, MODEL, NETWORK, History, NodeSettings, SamplingSettings
from goodspeed.wire.fields import MAX_CONTEXT, MAX_DRAFT, Drafter, Verification

NAME = r"[A-Za-z0-9._-]{1,64}"
"""Pattern of a client's name."""

OWN_CLASS = r"[\w./-]{1,200}:[A-Za-z_]\w*"
"""Pattern of MODULE:CLASS and PATH.py:CLASS."""

MAX_MODEL_NAME = 256
"""Most characters of a model's name, also in requests."""

ANY_NAME = "*"
"""Value of `--served-model-name` with which requests may call the model anything."""

OF_PROMPTS = ("prompts", "temperature")
"""Settings that HTTP requests specify themselves."""

OF_HTTP = (
    "api_key",
    "served_model_name",
    "tool_parser",
    "reasoning_parser",
    "chat_template_kwargs",
    "refuse_control_tokens",
)
"""Settings for requests over HTTP only."""

OF_WEIGHTS = ("engine", "device", "dtype", "memory_fraction", "preset", "threads")
"""Settings that concern only a draft model in this process."""

SWITCHED = {"verification": ("match", "ratio"), "drafter": ("auto", "model"), "proposal": ("lattice", "dense-fp32")}
"""Settings that `--preset paper` decides: each one's default, and its value with the preset."""


def default_name() -> str:
    """Returns a name for this process, so that the verify node's logs and metrics distinguish draft nodes."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "draft"
    return f"{host[:48]}-{os.getpid()}"


@dataclass(frozen=True, kw_only=True)
class DraftConfig(NodeSettings, SamplingSettings):
    """See `goodspeed-draft --help`."""

    MOST_USED = ("model", "verify", "http", "name", "key", "verify_key")

    model: str = option(
        MISSING,
        MODEL,
        f"draft model: {NO_MODEL}, http://HOST:PORT (llama.cpp), source:NAME (docs/SOURCE.md), {options.NAMES}",
        metavar="NAME",
    )
    tokenizer: str | None = option(
        None,
        MODEL,
        f"the target's, with --model {NO_MODEL}, http:// or source:; for a GGUF file in place of its own",
        shown="the model's own",
        metavar="NAME|PATH",
    )
    verify: tuple[str, ...] = option(
        ("tcp://127.0.0.1:5555",),
        NETWORK,
        "the verify node; may be repeated for a fleet",
        shown="tcp://127.0.0.1:5555",
        metavar="tcp://HOST:PORT",
    )
    name: str = option(
        default_name(), NETWORK, "this client's name, the unit of fairness", shown="HOST-PID", metavar="NAME"
    )
    prompts: str | None = option(
        None, "prompts", "instead of --http: a file of JSON lines with `prompt`, `seed`; needs --json", metavar="FILE"
    )
    max_tokens: int | None = option(
        None,
        "prompts",
        "most tokens of a text; over HTTP, a chat's default",
        shown="150; of chats over HTTP 4096",
        minimum=1,
        maximum=MAX_CONTEXT,
    )
    preset: str | None = options.preset(DRAFTING)
    verification: Verification = option(
        None, DRAFTING, "how drafts are verified", shown="match; of the preset ratio", choices=get_args(Verification)
    )
    max_draft: int = MAX_DRAFT  # longest draft wanted; 0: none
    drafter: Drafter = option(
        None,
        DRAFTING,
        "of requests that name none; auto: what pays",
        shown="auto; of the preset model",
        choices=get_args(Drafter),
    )
    history: History | None = option(
        None,
        DRAFTING,
        "whose earlier texts n-gram drafts use",
        shown="user with keys, else node",
        choices=get_args(History),
    )
    max_sessions: int = option(16, "limits", "texts written at once; more wait", minimum=1)
    dtype: str = options.precision("the quickest")
    connect_timeout_s: float = option(
        60.0,
        NETWORK,
        "how long an absent verify node is waited for; then texts end with an error, with --prompts the node, too",
        minimum=0.1,
    )
    verify_key: str | None = option(None, NETWORK, "the verify node's public key", shown="any node", metavar="FILE")
    http: str | None = option(None, "HTTP", "serve the OpenAI API there", shown="none: --prompts", metavar="HOST:PORT")
    served_model_name: tuple[str, ...] = option(
        (),
        "HTTP",
        f"what HTTP clients call the model; may be repeated, {ANY_NAME} takes any name",
        shown="the target's own name",
        metavar="NAME",
    )
    tool_parser: str = option(
        "auto",
        "HTTP",
        f"how the model writes tool calls: auto, none, {', '.join(TOOLS)}",
        choices=("auto", "none", *TOOLS),
        metavar="FORMAT",
    )
    reasoning_parser: str = option(
        "auto",
        "HTTP",
        f"how it marks its thinking: auto, none, {', '.join(THINKING)}",
        choices=("auto", "none", *THINKING),
        metavar="FORMAT",
    )
    chat_template_kwargs: str | None = option(
        None, "HTTP", 'variables of the chat template, like {"enable_thinking": false}', metavar="JSON"
    )
    refuse_control_tokens: bool = option(
        False, "HTTP", "400 for chats whose own texts spell control tokens like <|im_start|>"
    )
    proposal: str = ""  # what is sent of distributions under ratio: lattice, dense-fp16, dense-fp32; "": as `SWITCHED`
    history_tokens: int = 1_000_000  # most tokens of history; the oldest texts are dropped whole
    http_max_waiting: int = 256  # texts that wait beyond `max_sessions`: `RequestQueue.waiting_of`

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, (usual, of_preset) in SWITCHED.items():
            given, decided = getattr(self, name), of_preset if self.is_paper else usual
            if self.is_paper and given and given != decided:
                raise ConfigError(f"--preset {self.preset} has --{name} {decided}; drop one of them")
            object.__setattr__(self, name, given or decided)
        options.check_keys(self.key, self.verify_key, "--verify-key FILE", trusted_network=self.trusted_network)
        _check_together(self)
        if not all(1 <= len(name.strip()) <= MAX_MODEL_NAME for name in self.served_model_name):
            raise ConfigError(f"--served-model-name must have 1 to {MAX_MODEL_NAME} characters")

    def template_variables(self) -> dict[str, Any]:
        """Returns the variables of --chat-template-kwargs; ConfigError if it is no JSON object."""
        try:
            return msgspec.json.decode(self.chat_template_kwargs or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            what = "must be a JSON object, with the template's variables by name"
            raise ConfigError(f"--chat-template-kwargs {what} ({error})") from error

    @property
    def is_paper(self) -> bool:
        return self.preset == "paper"

    @property
    def has_model(self) -> bool:
        """False if the node drafts with n-grams alone."""
        return self.model != NO_MODEL

    @property
    def is_url(self) -> bool:
        return names.is_url(self.model)

    @property
    def is_source(self) -> bool:
        """True if `--model` names a draft source: one of another package, or the user's own."""
        return self.model.startswith(names.SOURCE)

    @property
    def has_weights(self) -> bool:
        """True if the node loads a draft model itself."""
        return self.has_model and not self.is_url and not self.is_source

    @property
    def whose_history(self) -> History:
        """Returns whose earlier texts n-gram drafts use, in addition to a session's own text."""
        return self.history or ("user" if self.api_key is not None else "node")


def _check_together(config: DraftConfig) -> None:
    """Raises ConfigError for options that exclude each other, or that need a missing option."""
    _check_model(config)
    if config.history == "user" and config.api_key is None:
        raise ConfigError(
            "--history user needs --api-key FILE: users are known by their keys; or give --history node or off"
        )
    config.template_variables()
    for flag in _given(config, OF_HTTP) if config.http is None else ():
        raise ConfigError(f"{flag} is for requests over HTTP; give --http HOST:PORT too")
    for flag in _given(config, OF_PROMPTS) if config.http is not None else ():
        what = "is for prompts, but --http serves requests, and each sets this itself"
        instead = ", or give --sampling temperature=T for those that do not" if flag == "--temperature" else ""
        raise ConfigError(f"{flag} {what}; drop one{instead}")


def _check_model(config: DraftConfig) -> None:
    """Refuses model options without a model, and a tokenizer in addition to a model's own."""
    if config.has_model and not config.has_weights:
        _check_elsewhere(config)
        return
    if config.has_model:
        if re.fullmatch(OWN_CLASS, config.model) and not Path(config.model).exists():
            raise ConfigError(
                f"there is no model {config.model}; for a draft source say --model {SOURCE}{config.model}"
            )
        if config.tokenizer is not None and not is_gguf(config.model):
            raise ConfigError(
                f"--tokenizer is for --model {NO_MODEL}, FILE.gguf, http://HOST:PORT and source:NAME; the model "
                f"{config.model} brings its own tokenizer, so leave it out; a draft source is named as source:NAME"
            )
        return
    if config.tokenizer is None:
        what = "name the target's, because the node still encodes prompts"
        raise ConfigError(f"--model {NO_MODEL} needs --tokenizer NAME|FOLDER|FILE: {what}")
    for flag in _given(config, OF_WEIGHTS):
        raise ConfigError(f"{flag} needs a draft model; leave it out, or give a model with --model")
    if config.drafter == "model":
        raise ConfigError("--drafter model needs a draft model; give one with --model, or --drafter ngram")


def _check_elsewhere(config: DraftConfig) -> None:
    """Refuses what llama.cpp's server or a draft source cannot do, or has settings of its own for."""
    what = "a draft source" if config.is_source else "llama.cpp's server"
    if config.tokenizer is None:
        scheme = config.model.partition(":")[0]  # the rest may hold a password
        model = config.model if config.is_source else f"{scheme}://..."
        raise ConfigError(f"--model {model} needs --tokenizer NAME|FOLDER|FILE, the target's")
    weights = "give the draft model itself: a GGUF file, a folder or a hub name"
    for flag in _given(config, OF_WEIGHTS):
        instead = "start llama-server with it" if flag == "--threads" and config.is_url else "leave it out"
        raise ConfigError(f"{flag} is not for {what}; {instead}, or {weights}")
    if config.verification == "ratio":
        needs = f"--verification ratio needs the draft model's whole distribution, which {what} does not give"
        raise ConfigError(f"{needs}; leave it out, or {weights}")


def _given(config: DraftConfig, names: Container[str]) -> Iterator[str]:
    """Yields the options among these settings that differ from their default."""
    for entry in fields(config):
        if entry.name in names and getattr(config, entry.name) != entry.default:
            yield "--" + entry.name.replace("_", "-")
