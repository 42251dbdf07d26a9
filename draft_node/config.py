"""The draft node's settings; each is also an option of `goodspeed-draft`."""

import os
import re
import socket
from dataclasses import dataclass, fields

from draft_node.exclusions import check_together
from draft_node.parsing.formats import THINKING, TOOLS
from goodspeed.errors import ConfigError
from goodspeed.serving import model_options, options, sampling_options
from goodspeed.serving.config import Settings, option
from goodspeed.serving.options import NO_MODEL, History
from goodspeed.wire.fields import MAX_CONTEXT, MAX_DRAFT, Drafter, Verification

NAME = r"[A-Za-z0-9._-]{1,64}"
"""What a client may be called."""

PRESETS = {"paper": {"verification": "ratio", "proposal": "dense-fp32", "drafter": "model"}}
"""What `--preset` has of each setting that it names."""


@dataclass(frozen=True, kw_only=True)
class NgramSettings:
    """Where n-gram drafts come from, besides a session's own text."""

    history: History = "node"
    history_tokens: int = 1_000_000  # most tokens kept, and of the corpora; the oldest texts are dropped whole
    history_file: str | None = None  # keeps the history over restarts
    corpora: tuple[str, ...] = ()  # folders of documents


def default_name() -> str:
    """This process's own, so that the verify node's lines and metrics tell draft nodes apart."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "draft"
    return f"{host[:48]}-{os.getpid()}"


@dataclass(frozen=True, kw_only=True)
class DraftConfig(Settings):
    """See `goodspeed-draft --help`."""

    MOST_USED = ("model", "verify", "http", "name", "key", "verify_key")

    model: str = model_options.model(f"draft model: {NO_MODEL} (drafts are n-grams; needs --tokenizer), ")
    tokenizer: str | None = option(
        None,
        shown="the model's own",
        group=model_options.GROUP,
        help=f"with --model {NO_MODEL}: the target's tokenizer, an embedded model's name or a folder with "
        "tokenizer.json",
        metavar="NAME|FOLDER",
    )
    verify: tuple[str, ...] = option(
        ("tcp://127.0.0.1:5555",),
        shown="tcp://127.0.0.1:5555",
        group="connection",
        help="address of the verify node; repeated, of several of one fleet: where one is away, the next is asked",
        metavar="tcp://HOST:PORT",
    )
    name: str = option(
        default_name(),
        shown="this host's name and the process's number",
        group="connection",
        help="this client's name at the verify node, the unit of fairness",
        metavar="NAME",
    )
    prompts: str | None = option(
        None,
        shown="lines of text on standard input",
        group="prompts",
        help="JSONL file (- is standard input): a `prompt`, optionally `domain`, `seed`",
        metavar="FILE",
    )
    max_tokens: int = option(
        150,
        minimum=1,
        maximum=MAX_CONTEXT,
        group="prompts",
        help="most tokens generated per prompt; over HTTP: of chats that set no limit",
        metavar="N",
    )
    temperature: float | None = sampling_options.temperature(
        group="prompts", shown="what the target's makers say, else 1"
    )
    seed: int | None = sampling_options.seed(
        group="prompts", shown="a random one for each prompt", help="seed of prompts without one"
    )
    tier: str | None = option(
        None,
        shown="that called default, if there is one",
        group="prompts",
        help="service level of prompts: one of the verify node's --slo-tier",
        metavar="NAME",
    )
    preset: str | None = options.preset()
    verification: Verification = options.verification()
    proposal: str = options.proposal()
    max_draft: int = option(
        MAX_DRAFT,
        minimum=0,
        maximum=MAX_DRAFT,
        group="drafting",
        help="longest draft wanted; 0 is no speculation",
        metavar="N",
    )
    drafter: Drafter = options.drafter()
    history: History | None = options.history()
    history_file: str | None = option(
        None,
        shown="a restart forgets it",
        group="drafting",
        help="keep the history there, readable for this user only: it holds what users wrote",
        metavar="FILE",
    )
    corpus: tuple[str, ...] = option(
        (),
        shown="none",
        group="drafting",
        help="folder of texts that n-gram drafts come from as well, for all users; may be repeated",
        metavar="FOLDER",
    )
    max_sessions: int = option(
        16, minimum=1, group="limits", help="prompts served at once; more wait their turn", metavar="N"
    )
    memory_fraction: float | None = model_options.memory_fraction()
    device: str = model_options.device()
    dtype: str = model_options.dtype()
    threads: int | None = model_options.threads()
    connect_timeout_s: float = option(
        60.0, minimum=0.1, group="connection", help="how long an absent verify node is waited for"
    )
    fallback: str = option(
        "none",
        choices=("none", "local"),
        group="connection",
        help="when the verify node is away for longer: none ends texts with an error; local has the draft model write "
        "on alone, which is another distribution, and marks such tokens",
    )
    key: str | None = option(
        None,
        shown="no encryption: loopback only",
        group="keys",
        help="this node's secret key, of `goodspeed keygen draft`; it brings the --name",
        metavar="FILE",
    )
    verify_key: str | None = option(
        None,
        shown="the verify node is not asked for a key",
        group="keys",
        help="the verify node's public key, of `goodspeed keygen verify`",
        metavar="FILE",
    )
    trusted_network: bool = options.trusted_network()
    http: str | None = option(
        None,
        shown="prompts are served",
        group="HTTP",
        help="serve the OpenAI API there, until told to stop, instead of prompts",
        metavar="HOST:PORT",
    )
    api_key: str | None = option(
        None,
        shown="no keys: loopback only",
        group="HTTP",
        help="file with the keys that HTTP clients need, one a line; a must beyond loopback",
        metavar="FILE",
    )
    served_model_name: str = option("goodspeed", group="HTTP", help="what HTTP clients call the model", metavar="NAME")
    tool_parser: str = option(
        "auto",
        choices=("auto", "none", *TOOLS),
        group="HTTP",
        help="how the model writes the tools that it calls; auto: as its chat template says, none: tools are refused",
    )
    reasoning_parser: str = option(
        "auto",
        choices=("auto", "none", *THINKING),
        group="HTTP",
        help="how the model marks what it thinks; auto: as its chat template says, none: all of it is content",
    )
    chat_template_kwargs: str | None = option(
        None,
        shown="none",
        group="HTTP",
        help='variables of the chat template for requests that do not set them, like {"enable_thinking": false}',
        metavar="JSON",
    )
    http_max_waiting: int = option(
        256,
        minimum=0,
        group="limits",
        help="texts that wait their turn beyond --max-sessions; more are told to come again",
        metavar="N",
    )
    drain_timeout_s: float = option(
        30.0, minimum=0.0, group="limits", help="how long running texts may go on once the node is told to stop"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset is not None:
            self._take_preset(self.preset)
        options.check_keys(self.key, self.verify_key, "--verify-key FILE", trusted_network=self.trusted_network)
        check_together(self)

    def _take_preset(self, name: str) -> None:
        """Takes a preset's settings; ConfigError where another was given for one of them."""
        for entry in fields(self):
            if (value := PRESETS[name].get(entry.name)) is None:
                continue
            if getattr(self, entry.name) not in (entry.default, value):
                raise ConfigError(f"--preset {name} has --{entry.name} {value}; drop one of them")
            object.__setattr__(self, entry.name, value)

    @property
    def has_model(self) -> bool:
        """Whether this node has a draft model."""
        return self.model != NO_MODEL

    @property
    def ngram(self) -> NgramSettings:
        """Where n-gram drafts come from."""
        return NgramSettings(
            history=self.history or ("user" if self.api_key is not None else "node"),
            history_file=self.history_file,
            corpora=self.corpus,
        )
