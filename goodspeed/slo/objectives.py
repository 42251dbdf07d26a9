"""Service level objectives (SLOs) of one text, and the tiers that name them.

TTFT is the time from a request to its first token; TPOT, the time per output token after it.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from goodspeed.errors import ConfigError

MAX_TIER_CHARS: Final = 64

TIER: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_TIER_CHARS}}}\Z")
"""Pattern of a tier's name, which becomes a label of metrics."""

DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|s)\Z")

LONGEST_S: Final = 3600.0
"""Longest time that an objective may have, in seconds."""

SHORTEST_S: Final = 1e-4
"""Shortest time that an objective may have, in seconds."""

MAX_TIERS: Final = 32

EXAMPLE: Final = "as in chat:ttft=500ms,tpot=50ms"

WINDOW: Final = 10
"""Tokens over which a TPOT is measured, unless a text or tier says otherwise: as in SLOs-Serve's evaluation."""

MAX_WINDOW: Final = 1000

TIMES: Final = ("ttft", "tpot", "thinking_tpot")
"""Names of a tier's times in options."""

OTHER: Final = "other"
"""Label of metrics for objectives that match no tier of the node. No tier may have this name."""

DEFAULT_TIER: Final = "default"
"""Name of the tier for requests without objectives."""

Limit: TypeAlias = Annotated[float, Meta(ge=SHORTEST_S, le=LONGEST_S)]
"""A time that an objective may have, in seconds."""

Window: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_WINDOW)]

TierName: TypeAlias = Annotated[str, Meta(max_length=MAX_TIER_CHARS, pattern=r"^[A-Za-z0-9._-]*\Z")]


class Objectives(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Latency objectives (SLO) of one text, in seconds; None: no bound. Sent on the wire: fields are only appended."""

    ttft_s: Limit | None = None
    tpot_s: Limit | None = None
    tier: TierName = ""  # the source of the times; empty: the request itself gave them
    tpot_window: Window = WINDOW  # tokens of each window over which the TPOT is a mean; 0: the whole text
    thinking_tpot_s: Limit | None = None  # of the model's thinking, with a TPOT for the rest; None: the same

    @property
    def is_empty(self) -> bool:
        """True if neither time is bounded."""
        return self.ttft_s is None and self.tpot_s is None

    def at_least(self, least_tpot_s: float) -> "Objectives":
        """Returns these objectives with TPOTs of at least `least_tpot_s`, the minimum of the client's key."""
        if (tpot_s := self.tightest_tpot_s) is None or tpot_s >= least_tpot_s:
            return self
        given = {name: getattr(self, name) for name in ("tpot_s", "thinking_tpot_s")}
        return replace(self, **{name: max(one, least_tpot_s) for name, one in given.items() if one is not None})

    @property
    def tightest_tpot_s(self) -> float | None:
        """The shorter TPOT of both stages; None: no bound."""
        return min((one for one in (self.tpot_s, self.thinking_tpot_s) if one is not None), default=None)

    def whole(self) -> "Objectives":
        """Returns objectives of one stage that require no less: all at the tightest TPOT (SLOs-Serve, 3.2.1)."""
        return (
            self if self.thinking_tpot_s is None else replace(self, tpot_s=self.tightest_tpot_s, thinking_tpot_s=None)
        )


def parse_tiers(texts: Sequence[str]) -> dict[str, Objectives]:
    """Parses `--slo-tier NAME:ttft=500ms,tpot=50ms` options; returns tiers by name. ConfigError names a faulty one."""
    tiers: dict[str, Objectives] = {}
    for text in texts:
        tier = parse_tier(text)
        if tier.tier in tiers:
            raise ConfigError(f"--slo-tier {text}: the tier {tier.tier} is given twice; give each its own name")
        tiers[tier.tier] = tier
    if len(tiers) > MAX_TIERS:
        raise ConfigError(f"--slo-tier: {len(tiers)} tiers; give at most {MAX_TIERS}")
    return tiers


def parse_tier(text: str) -> Objectives:
    """Parses one tier, `NAME:ttft=500ms,tpot=50ms,thinking_tpot=20ms,window=10`; TTFT or TPOT alone is enough."""
    name, colon, rest = text.partition(":")
    if not colon or not TIER.match(name):
        what = "a tier is a name of letters, digits, '.', '_' and '-', a colon and its objectives"
        raise ConfigError(f"--slo-tier {text}: {what}, {EXAMPLE}")
    if name == OTHER:
        raise ConfigError(f"--slo-tier {text}: metrics use {OTHER!r} for texts of no tier; choose another name")
    found: dict[str, str] = {}
    for part in rest.split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in (*TIMES, "window") or key in found:
            what = "is not ttft=TIME, tpot=TIME, thinking_tpot=TIME or window=TOKENS, each once"
            raise ConfigError(f"--slo-tier {text}: {part!r} {what}; {EXAMPLE}")
        found[key] = value
    if "tpot" not in found and (needs := found.keys() & {"window", "thinking_tpot"}):
        raise ConfigError(f"--slo-tier {text}: {min(needs)} needs a TPOT; add tpot=TIME, {EXAMPLE}")
    ttft_s, tpot_s, thinking_s = (_seconds(text, key, found[key]) if key in found else None for key in TIMES)
    return Objectives(ttft_s, tpot_s, name, _window(text, found.get("window", str(WINDOW))), thinking_s)


def _window(text: str, value: str) -> int:
    if not re.fullmatch("[0-9]{1,4}", value) or int(value) > MAX_WINDOW:
        allowed = f"a number of tokens from 1 to {MAX_WINDOW}, or 0 for the mean over the text"
        raise ConfigError(f"--slo-tier {text}: window is {value!r} and must be {allowed}; {EXAMPLE}")
    return int(value)


def _seconds(text: str, key: str, value: str) -> float:
    match = DURATION.match(value)
    seconds = float(match[1]) * (1e-3 if match[2] == "ms" else 1.0) if match else 0.0
    if not SHORTEST_S <= seconds <= LONGEST_S:
        allowed = f"a time from {SHORTEST_S * 1000:g}ms to {LONGEST_S:g}s"
        raise ConfigError(f"--slo-tier {text}: {key} is {value!r} and must be {allowed}; {EXAMPLE}")
    return seconds
