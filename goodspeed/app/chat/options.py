"""Settings of `goodspeed chat`, and the node's URL and API key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from goodspeed.errors import ConfigError
from goodspeed.serving import api_keys, options
from goodspeed.serving.config import Settings, option
from goodspeed.wire.fields import MAX_CONTEXT

KEY_VARIABLE = "GOODSPEED_API_KEY"
NODE = "what the node says"


@dataclass(frozen=True, kw_only=True)
class ChatConfig(Settings):
    """Settings of `goodspeed chat`; see its --help."""

    url: str = option("http://127.0.0.1:8000", "node", "where a draft node serves HTTP", metavar="URL")
    model: str | None = option(None, "node", "its name there", shown="the first", metavar="NAME")
    api_key: str | None = option(
        None, "node", "file with the key", shown=f"the key in {KEY_VARIABLE}, if set", metavar="FILE"
    )
    system: str | None = option(None, "texts", "what the model is told first", shown="nothing", metavar="TEXT")
    max_tokens: int | None = option(
        None, "texts", "most tokens of an answer", shown=NODE, minimum=1, maximum=MAX_CONTEXT
    )
    temperature: float | None = options.temperature("texts", shown=NODE, maximum=2.0)
    seed: int | None = options.seed("texts", "the same seed gives the same answers", shown="a random one")
    tier: str | None = option(
        None, "texts", "service level of answers, by its name (--slo-tier)", shown=NODE, metavar="NAME"
    )
    speculate: bool = option(True, "drafting", "the target alone decodes")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("system", "tier"):  # what is not UTF-8 becomes replacement characters, as in turns
            if (text := getattr(self, name)) is not None:
                object.__setattr__(self, name, text.encode(errors="surrogateescape").decode(errors="replace"))

    def request(self, model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
        """Returns the request body for the next turn; omits unset options, so that the node's defaults apply."""
        own = {"speculate": None if self.speculate else False, "slo": self.tier}
        sampling = {"max_tokens": self.max_tokens, "temperature": self.temperature, "seed": self.seed}
        asked = {**sampling, "goodspeed": _given(own) or None}
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        return {"model": model, "messages": messages, **streamed, **_given(asked)}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Door:
    """A node's URL and API key; the key is never shown."""

    url: str
    key: str | None = field(default=None, repr=False)


def door(config: ChatConfig, environment: Mapping[str, str]) -> Door:
    """Reads the node's URL and key from options and environment. ConfigError for a bad URL or key."""
    url = base_url(config.url)
    if config.api_key is not None:
        return Door(url, api_keys.read(config.api_key)[0])
    key = environment.get(KEY_VARIABLE)
    if key and not api_keys.is_key(key):
        raise ConfigError(f"{KEY_VARIABLE} holds no key; a key has 8 to 512 printable ASCII characters and no blanks")
    return Door(url, key or None)


def base_url(url: str) -> str:
    """Returns the URL without a trailing /v1, which other clients require. ConfigError for a bad URL."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and parts.hostname is not None and (parts.port or 1) > 0
    except ValueError:  # an invalid port or IPv6 address
        is_url = False
    if not is_url or not url.isprintable() or parts.query or parts.fragment:
        raise ConfigError(f"--url {url!r} is not a node's address; write http://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"--url holds a user or a password; leave them out, and use --api-key FILE or {KEY_VARIABLE}")
    return url.rstrip("/").removesuffix("/v1")
