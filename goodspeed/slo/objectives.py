"""Service level objectives (SLOs) of one text, and the tiers that name them.

TTFT is the time from a request to its first token; TPOT, the time per output token after it.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from goodspeed.errors import ConfigError

MAX_TIER_CHARS: Final = 64

TIER: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_TIER_CHARS}}}\Z")
"""A tier's name: it becomes a label of metrics."""

DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|s)\Z")

LONGEST_S: Final = 3600.0
"""Longest time that is taken as an objective."""

SHORTEST_S: Final = 1e-4
"""Shortest time that is taken as an objective."""

MAX_TIERS: Final = 32

EXAMPLE: Final = "as in chat:ttft=500ms,tpot=50ms"

OTHER: Final = "other"
"""Label of metrics for objectives of no tier that the node knows. No tier may be called so."""

DEFAULT_TIER: Final = "default"
"""Name of the tier for requests that ask for nothing."""

Limit: TypeAlias = Annotated[float, Meta(ge=SHORTEST_S, le=LONGEST_S)]
"""A time that may be asked for, in seconds."""

TierName: TypeAlias = Annotated[str, Meta(max_length=MAX_TIER_CHARS, pattern=r"^[A-Za-z0-9._-]*\Z")]


class Objectives(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Times that one text is to keep, in seconds; None: anything will do. Sent as it is: fields are only appended."""

    ttft_s: Limit | None = None
    tpot_s: Limit | None = None
    tier: TierName = ""  # that it is from; empty where the request said it itself

    @property
    def is_empty(self) -> bool:
        """True if it asks for nothing."""
        return self.ttft_s is None and self.tpot_s is None

    def at_least(self, least_tpot_s: float) -> "Objectives":
        """The same with a TPOT that is not below a bound, which somebody else set for whoever asks."""
        if self.tpot_s is None or self.tpot_s >= least_tpot_s:
            return self
        return Objectives(self.ttft_s, least_tpot_s, self.tier)


def parse_tiers(texts: Sequence[str]) -> dict[str, Objectives]:
    """The tiers of `--slo-tier NAME:ttft=500ms,tpot=50ms`, by name. ConfigError says what is wrong with which."""
    tiers: dict[str, Objectives] = {}
    for text in texts:
        tier = parse_tier(text)
        if tier.tier in tiers:
            raise ConfigError(f"--slo-tier {text}: the tier {tier.tier} is there twice; give each a name of its own")
        tiers[tier.tier] = tier
    if len(tiers) > MAX_TIERS:
        raise ConfigError(f"--slo-tier: {len(tiers)} tiers, and at most {MAX_TIERS} can be told apart; give fewer")
    return tiers


def parse_tier(text: str) -> Objectives:
    """One tier, as `NAME:ttft=500ms,tpot=50ms`; either of both may be left out."""
    name, colon, rest = text.partition(":")
    if not colon or not TIER.match(name):
        what = "a tier is a name of letters, digits, '.', '_' and '-', a colon and what its texts are to keep"
        raise ConfigError(f"--slo-tier {text}: {what}, {EXAMPLE}")
    if name == OTHER:
        raise ConfigError(f"--slo-tier {text}: metrics call {OTHER!r} what is of no tier; give it another name")
    found: dict[str, float] = {}
    for part in rest.split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in ("ttft", "tpot") or key in found:
            raise ConfigError(f"--slo-tier {text}: {part!r} is not ttft=TIME or tpot=TIME, each once; {EXAMPLE}")
        found[key] = _seconds(text, key, value)
    return Objectives(found.get("ttft"), found.get("tpot"), name)


def _seconds(text: str, key: str, value: str) -> float:
    match = DURATION.match(value)
    seconds = float(match[1]) * (1e-3 if match[2] == "ms" else 1.0) if match else 0.0
    if not SHORTEST_S <= seconds <= LONGEST_S:
        allowed = f"a time from {SHORTEST_S * 1000:g}ms to {LONGEST_S:g}s"
        raise ConfigError(f"--slo-tier {text}: {key} is {value!r} and must be {allowed}; {EXAMPLE}")
    return seconds
