"""The draft node's settings; those made with `option` are also options of `goodspeed-draft`."""

import os
import re
import socket
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from draft_node.exclusions import check_together
from draft_node.parsing.formats import THINKING, TOOLS
from goodspeed.errors import ConfigError
from goodspeed.serving import options
from goodspeed.serving.config import Settings, option
from goodspeed.serving.defaults import BOUNDS, NodeSampling
from goodspeed.serving.options import NO_MODEL, History
from goodspeed.wire.fields import MAX_CONTEXT, MAX_DRAFT, Drafter, Verification

NAME = r"[A-Za-z0-9._-]{1,64}"
"""Pattern of a client's name."""


MAX_MODEL_NAME = 256
"""Most characters of a model's name, also in requests."""

ANY_NAME = "*"
"""Value of `--served-model-name` with which requests may call the model anything."""


def default_name() -> str:
    """Returns a name for this process, so that the verify node's logs and metrics distinguish draft nodes."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "draft"
    return f"{host[:48]}-{os.getpid()}"


@dataclass(frozen=True, kw_only=True)
class DraftConfig(Settings):
    """See `goodspeed-draft --help`."""

    MOST_USED = ("model", "verify", "http", "name", "key", "verify_key")

    model: str = options.model(f"draft model: {NO_MODEL}, http://HOST:PORT (llama.cpp), source:NAME (docs/SOURCE.md), ")
    tokenizer: str | None = option(
        None,
        shown="the model's own",
        group=options.MODEL,
        help=f"the target's, with --model {NO_MODEL}, http:// or source:; for a GGUF file in place of its own",
        metavar="NAME|PATH",
    )
    verify: tuple[str, ...] = option(
        ("tcp://127.0.0.1:5555",),
        shown="tcp://127.0.0.1:5555",
        group=options.NETWORK,
        help="the verify node; may be repeated for a fleet",
        metavar="tcp://HOST:PORT",
    )
    name: str = option(
        default_name(),
        shown="HOST-PID",
        group=options.NETWORK,
        help="this client's name, the unit of fairness",
        metavar="NAME",
    )
    prompts: str | None = option(
        None,
        shown="lines of text",
        group="prompts",
        help="JSONL with `prompt`, `domain`, `seed`; - is standard input",
        metavar="FILE",
    )
    max_tokens: int | None = option(
        None,
        shown="150; of chats over HTTP 4096",
        minimum=1,
        maximum=MAX_CONTEXT,
        group="prompts",
        help="most tokens of a text; over HTTP, a chat's default",
        metavar="N",
    )
    temperature: float | None = options.temperature(group="prompts", shown="the target's own default, else 1")
    seed: int | None = options.seed(
        group="prompts", shown="a random one for each prompt", help="seed of prompts without one"
    )
    sampling: str | None = option(
        None,
        shown="the target's own defaults; of chats else temperature=0.7,top_p=0.95",
        group="prompts",
        help=f"of requests and prompts that leave it open: {', '.join(BOUNDS)}",
        metavar="NAME=VALUE,...",
    )
    tier: str | None = option(
        None,
        shown="that called default",
        group="prompts",
        help="service level: a verify node's --slo-tier",
        metavar="NAME",
    )
    preset: str | None = options.preset(options.DRAFTING)
    verification: Verification = options.verification()
    proposal: str = options.proposal()
    max_draft: int = MAX_DRAFT  # longest draft wanted; 0: no speculation
    drafter: Drafter = option(
        "auto", choices=get_args(Drafter), group=options.DRAFTING, help="of requests that name none; auto: what pays"
    )
    history: History | None = option(
        None,
        shown="user with keys, else node",
        choices=get_args(History),
        group=options.DRAFTING,
        help="whose earlier texts n-gram drafts use",
    )
    history_file: str | None = option(
        None,
        shown="none",
        group=options.DRAFTING,
        help="keeps the history, which holds what users wrote",
        metavar="FILE",
    )
    corpus: tuple[str, ...] = option(
        (), shown="none", group=options.DRAFTING, help="texts for n-gram drafts; may be repeated", metavar="FOLDER"
    )
    max_sessions: int = option(16, minimum=1, group="limits", help="texts written at once; more wait", metavar="N")
    memory_fraction: float | None = options.memory_fraction()
    engine: str = options.engine()
    device: str = options.device()
    dtype: str = options.dtype("the quickest")
    threads: int | None = options.threads()
    connect_timeout_s: float = option(
        60.0,
        minimum=0.1,
        group=options.NETWORK,
        help="how long an absent verify node is waited for; then texts end with an error, without --http the node, too",
    )
    key: str | None = options.key("goodspeed keygen draft NAME")
    verify_key: str | None = option(
        None, shown="any node", group=options.NETWORK, help="the verify node's public key", metavar="FILE"
    )
    trusted_network: bool = options.trusted_network()
    http: str | None = option(
        None,
        shown="prompts are served",
        group="HTTP",
        help="serve the OpenAI API there, instead of prompts",
        metavar="HOST:PORT",
    )
    api_key: str | None = options.api_key("HTTP")
    served_model_name: tuple[str, ...] = option(
        (),
        shown="the target's own name",
        group="HTTP",
        help=f"what HTTP clients call the model; may be repeated, {ANY_NAME} takes any name",
        metavar="NAME",
    )
    tool_parser: str = option(
        "auto",
        choices=("auto", "none", *TOOLS),
        group="HTTP",
        help=f"how the model writes tool calls: auto, none, {', '.join(TOOLS)}",
        metavar="FORMAT",
    )
    reasoning_parser: str = option(
        "auto",
        choices=("auto", "none", *THINKING),
        group="HTTP",
        help=f"how it marks its thinking: auto, none, {', '.join(THINKING)}",
        metavar="FORMAT",
    )
    chat_template_kwargs: str | None = option(
        None,
        shown="none",
        group="HTTP",
        help='variables of the chat template, like {"enable_thinking": false}',
        metavar="JSON",
    )
    refuse_control_tokens: bool = option(
        False, group="HTTP", help="400 for chats whose own texts spell control tokens like <|im_start|>"
    )
    drain_timeout_s: float = option(
        30.0, minimum=0.0, group="limits", help="time for running texts when the node is told to stop"
    )
    history_tokens: int = 1_000_000  # most tokens of history, and of corpora; the oldest texts are dropped whole
    http_max_waiting: int = 256  # texts that wait beyond `max_sessions`; more are refused

    def __post_init__(self) -> None:
        super().__post_init__()
        options.take_preset(self, self.preset)
        options.check_keys(self.key, self.verify_key, "--verify-key FILE", trusted_network=self.trusted_network)
        check_together(self)
        if not all(1 <= len(name.strip()) <= MAX_MODEL_NAME for name in self.served_model_name):
            raise ConfigError(f"--served-model-name must have 1 to {MAX_MODEL_NAME} characters")

    @cached_property
    def node_sampling(self) -> NodeSampling:
        """The values of `--sampling`; ConfigError if one is wrong."""
        return NodeSampling() if self.sampling is None else NodeSampling.parse(self.sampling)

    @property
    def has_model(self) -> bool:
        """False if the node drafts with n-grams alone."""
        return self.model != NO_MODEL

    @property
    def is_url(self) -> bool:
        return options.is_url(self.model)

    @property
    def is_source(self) -> bool:
        """True if a source of another package, or of the user's own, drafts."""
        return self.model.startswith(options.SOURCE)

    @property
    def has_weights(self) -> bool:
        """True if the node loads a draft model itself."""
        return self.has_model and not self.is_url and not self.is_source

    @property
    def whose_history(self) -> History:
        """Returns whose earlier texts n-gram drafts use, in addition to a session's own text."""
        return self.history or ("user" if self.api_key is not None else "node")
