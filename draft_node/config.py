"""The draft node's settings; each is also an option of `goodspeed-draft`."""

import os
import re
import socket
from dataclasses import dataclass, fields

from goodspeed.command import sampling_options
from goodspeed.command.config import DEVICE, Settings, option
from goodspeed.errors import ConfigError
from goodspeed.wire.messages import MAX_CONTEXT, MAX_DRAFT

NAME = r"[A-Za-z0-9._-]{1,64}"
"""What a client may be called."""

OF_PROMPTS = ("prompts", "chat", "temperature", "top_k", "top_p", "seed")
"""Settings that requests over HTTP bring themselves."""


def default_name() -> str:
    """This process's own: two nodes of one name would share one client's part of the budget."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "draft"
    return f"{host[:48]}-{os.getpid()}"


@dataclass(frozen=True, kw_only=True)
class DraftConfig(Settings):
    """See `goodspeed-draft --help`."""

    model: str = option(
        group="model", help="draft model: an embedded name, a local folder, or a hub name", metavar="NAME"
    )
    verify: str = option(
        "tcp://127.0.0.1:5555", group="connection", help="address of the verify node", metavar="tcp://HOST:PORT"
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
    chat: bool = option(
        False, group="prompts", help="put each prompt through the tokenizer's chat template, as one user message"
    )
    max_tokens: int = option(
        150,
        minimum=1,
        maximum=MAX_CONTEXT,
        group="prompts",
        help="most tokens generated per prompt; over HTTP: of a chat that does not say",
        metavar="N",
    )
    temperature: float | None = sampling_options.temperature(
        group="prompts", shown="what the target's makers say, else 1"
    )
    top_k: int | None = sampling_options.top_k(group="prompts", shown="what the target's makers say, else 0")
    top_p: float | None = sampling_options.top_p(group="prompts", shown="what the target's makers say, else 1")
    seed: int | None = option(
        None,
        minimum=0,
        maximum=(1 << 63) - 1,
        shown="a random one for each prompt",
        group="prompts",
        help="seed of prompts that bring none",
        metavar="N",
    )
    verification: str = option("match", choices=("match", "ratio"), group="drafting", help="how drafts are verified")
    proposal: str = option(
        "lattice",
        choices=("lattice", "dense-fp16", "dense-fp32"),
        group="drafting",
        help="ratio: what is sent of the distributions",
    )
    lattice_k: int = option(
        64,
        minimum=1,
        maximum=256,
        group="drafting",
        help="ratio: tokens kept at each position of a lattice proposal",
        metavar="K",
    )
    max_draft: int = option(
        MAX_DRAFT,
        minimum=0,
        maximum=MAX_DRAFT,
        group="drafting",
        help="longest draft wanted; 0 is no speculation",
        metavar="N",
    )
    draft_ahead: bool = option(
        True, group="drafting", help="draft on while a draft is in flight, as if all of it were accepted"
    )
    min_odds: float = option(
        0.3,
        minimum=0.0,
        maximum=1.0,
        group="drafting",
        help="match: end a draft when the draft model's own probability that all of it is accepted falls below P; "
        "0 always drafts the full length",
        metavar="P",
    )
    max_sessions: int = option(
        16, minimum=1, group="limits", help="prompts served at once; more wait their turn", metavar="N"
    )
    memory_fraction: float | None = option(
        None,
        minimum=0.001,
        maximum=0.95,
        shown="0.1 on a CPU, 0.85 of what is free on a GPU",
        group="model",
        help="share of the device's memory for keys and values",
        metavar="F",
    )
    kv_pages: int | None = option(
        None,
        minimum=1,
        shown="what --memory-fraction comes to",
        group="model",
        help="pages of key/value memory, instead of a share",
        metavar="N",
    )
    device: str = option("cpu", pattern=DEVICE, group="model", help="cpu, cuda, or cuda:INDEX")
    dtype: str = option(
        "float32", choices=("float32", "bfloat16", "float16"), group="model", help="precision of the forward pass"
    )
    threads: int | None = option(
        None, minimum=1, shown="one", group="model", help="CPU threads of the model", metavar="N"
    )
    verify_timeout_s: float = option(
        3.0, minimum=0.1, group="connection", help="silence after which the verify node counts as away"
    )
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
    trusted_network: bool = option(
        False, group="connection", help="allow an address beyond loopback, without keys or encryption"
    )
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
    http_max_body_bytes: int = option(
        4 << 20, minimum=1024, group="limits", help="largest body of a request", metavar="N"
    )
    http_max_prompts: int = option(64, minimum=1, group="limits", help="prompts in one request", metavar="N")
    http_max_n: int = option(16, minimum=1, group="limits", help="choices for each prompt of a request", metavar="N")
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
        if self.kv_pages is not None and self.memory_fraction is not None:
            raise ConfigError("--kv-pages and --memory-fraction both say how much memory there is; give one of them")
        if (self.key is None) != (self.verify_key is None):
            raise ConfigError("--key FILE and --verify-key FILE belong together: give both, or neither")
        if self.key is not None and self.trusted_network:
            raise ConfigError("--trusted-network is for a wire without keys, and --key is given; drop one of them")
        if self.http is None and self.api_key is not None:
            raise ConfigError("--api-key is for HTTP clients; give --http HOST:PORT too")
        if self.http is not None:
            self._check_that_prompts_are_left_out()

    def _check_that_prompts_are_left_out(self) -> None:
        """Nothing is ignored in silence: HTTP requests say all this themselves."""
        for entry in fields(self):
            if entry.name in OF_PROMPTS and getattr(self, entry.name) != entry.default:
                flag = "--" + entry.name.replace("_", "-")
                raise ConfigError(
                    f"{flag} is for prompts, and --http serves requests, which say it themselves; drop one"
                )
