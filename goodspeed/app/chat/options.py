"""The options of `goodspeed chat`, and the bodies of its requests. Knows nothing about how requests are sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from goodspeed.command import sampling_options
from goodspeed.command.config import Settings, option
from goodspeed.errors import ConfigError
from goodspeed.node import api_keys
from goodspeed.wire.fields import MAX_CONTEXT, MAX_DRAFT

KEY_VARIABLE = "GOODSPEED_API_KEY"


@dataclass(frozen=True, kw_only=True)
class ChatConfig(Settings):
    """Settings of `goodspeed chat`; see its --help."""

    url: str = option("http://127.0.0.1:8000", group="node", help="where a draft node serves HTTP", metavar="URL")
    model: str | None = option(
        None, shown="the first that is served", group="node", help="its name there", metavar="NAME"
    )
    api_key: str | None = option(
        None,
        shown=f"the key itself in {KEY_VARIABLE}, if set",
        group="node",
        help="file with the key",
        metavar="FILE",
    )
    system: str | None = option(
        None, shown="nothing", group="texts", help="what the model is told first", metavar="TEXT"
    )
    stop: str | None = option(
        None,
        shown="only those",
        group="texts",
        help="end answers at TEXT too, beside the model's own stop strings",
        metavar="TEXT",
    )
    max_tokens: int | None = option(
        None,
        minimum=1,
        maximum=MAX_CONTEXT,
        shown="what the node says",
        group="texts",
        help="most tokens of an answer",
        metavar="N",
    )
    temperature: float | None = sampling_options.temperature(group="texts", shown="what the node says", maximum=2.0)
    top_p: float | None = sampling_options.top_p(group="texts", shown="what the node says")
    top_k: int | None = sampling_options.top_k(group="texts", shown="what the node says")
    seed: int | None = sampling_options.seed(
        group="texts", shown="a random one", help="the same seed gives the same answers"
    )
    tier: str | None = option(
        None,
        shown="what the node says",
        group="texts",
        help="service level of answers, by its name at the node (--slo-tier)",
        metavar="NAME",
    )
    speculate: bool = option(True, group="drafting", help="--no-speculate: the target alone decodes")
    max_draft: int | None = option(
        None,
        minimum=0,
        maximum=MAX_DRAFT,
        shown="what the node says",
        group="drafting",
        help="longest draft; 0: none",
        metavar="N",
    )
    tint: bool = option(
        False, group="drafting", help="tint what came from accepted drafts (on a terminal that has colours)"
    )


@dataclass(frozen=True)
class Message:
    """A turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Door:
    """A node's URL and API key; the key is never shown."""

    url: str
    key: str | None = field(default=None, repr=False)


def door(config: ChatConfig, environment: Mapping[str, str]) -> Door:
    """Returns the node's URL and key from options and environment. ConfigError for a bad URL or key."""
    url = base_url(config.url)
    if config.api_key is not None:
        return Door(url, api_keys.read(config.api_key)[0])
    key = environment.get(KEY_VARIABLE)
    if key and not api_keys.is_key(key):
        raise ConfigError(f"{KEY_VARIABLE} holds no key; 8 to 512 printable ASCII characters, no blanks")
    return Door(url, key or None)


def base_url(url: str) -> str:
    """Returns the URL without the /v1 at its end that other clients want."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and parts.hostname is not None and (parts.port or 1) > 0
    except ValueError:  # a port or an IPv6 address that is none
        is_url = False
    if not is_url or not url.isprintable() or parts.query or parts.fragment:
        raise ConfigError(f"--url {url!r} is no address of a node; write http://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"--url holds a user or a password; leave them out, and use --api-key FILE or {KEY_VARIABLE}")
    return url.rstrip("/").removesuffix("/v1")


def request(config: ChatConfig, model: str, messages: Sequence[Message]) -> dict[str, object]:
    """Returns the body of a request for the next turn; unset options are left to the node."""
    sampling = {name: getattr(config, name) for name in ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")}
    extension = {
        "speculate": None if config.speculate else False,
        "max_draft": config.max_draft,
        "mark_accepted": config.tint or None,
        "slo": config.tier,
    }
    wanted = {**sampling, "goodspeed": _given(extension) or None}
    return {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        **_given(wanted),
    }


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
