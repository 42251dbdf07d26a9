"""Fills in sampling parameters, logit rules and stop strings that a request omits.

Defaults come from the draft node's --sampling, then from the target's generation_config.json, else from the API. The
verify node sends the target's defaults in its Welcome.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from goodspeed.engine.tokenizing import generation_settings
from goodspeed.engine.tokenizing.generation_settings import GenerationSettings
from goodspeed.errors import ConfigError
from goodspeed.wire.generation import TokenBias
from goodspeed.wire.handshake import Defaults, Welcome
from goodspeed.wire.messages import LogitRules, Sampling


def of_checkpoint(settings: GenerationSettings, *, chat: bool) -> Defaults:
    """Returns a checkpoint's defaults as the wire's struct."""
    return Defaults(**asdict(settings.chats if chat else settings.completions))


def known(welcome: Welcome | None, settings: GenerationSettings, *, chat: bool) -> Defaults:
    """Returns the target's defaults. welcome: the verify node's; None: the local model's `settings` apply."""
    if welcome is None:
        return of_checkpoint(settings, chat=chat)
    return welcome.chat_defaults if chat else welcome.defaults


def parse_sampling(text: str) -> dict[str, float]:
    """Parses `temperature=0.7,top_p=0.95`; ConfigError names a wrong part. Values are bounded as in requests."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (one.strip() for one in part.partition("="))
        if not equals or name not in BOUNDS or name in found:
            what = f"is not NAME=VALUE with one of {', '.join(BOUNDS)}, each once"
            raise ConfigError(f"--sampling {text}: {part.strip()!r} {what}; {EXAMPLE}")
        found[name] = _bounded(text, name, value)
    return found | ({"top_k": max(int(found["top_k"]), 0)} if "top_k" in found else {})


EXAMPLE = "as in temperature=0.7,top_p=0.95"

BOUNDS: dict[str, tuple[float, float]] = {
    **generation_settings.BOUNDS,
    "temperature": (0.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
"""Least and largest values of `--sampling`."""


def _bounded(text: str, name: str, value: str) -> float:
    least, most = BOUNDS[name]
    is_whole = name == "top_k"
    try:
        number = float(value) if not is_whole or re.fullmatch("-?[0-9]+", value) else math.nan
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        kind = "a whole number" if is_whole else "a number"
        raise ConfigError(
            f"--sampling {text}: {name} is {value!r}, but must be {kind} from {least:.15g} to {most:.15g}; {EXAMPLE}"
        )
    return number


class Resolved(NamedTuple):
    """Sampling, stop strings and logit rules of one text, with a target's defaults filled in."""

    sampling: Sampling
    stop: tuple[str, ...] = ()
    rules: LogitRules | None = None  # None: no changes


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """Sampling, stop strings and logit rules of a request; None: the default."""

    seed: int
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()  # strings that end the text
    stop_ids: tuple[int, ...] = ()  # tokens that end the text
    ignore_eos: bool = False  # the target's own stop strings and EOS tokens do not end the text
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    min_p: float | None = None
    logit_bias: tuple[TokenBias, ...] = ()

    def filled(self, node: Mapping[str, float]) -> "SamplingRequest":
        """Returns the request with the parameters that it leaves open filled in from `--sampling`."""
        said: dict[str, Any] = {name: value for name, value in node.items() if getattr(self, name) is None}
        return replace(self, **said)

    def resolve(self, defaults: Defaults) -> Resolved:
        """Returns the request's parameters with these defaults filled in."""
        sampling = Sampling(
            temperature=float(_first(self.temperature, defaults.temperature, 1.0)),
            top_k=int(_first(self.top_k, defaults.top_k, 0)),  # 0 and 1.0: off
            top_p=float(_first(self.top_p, defaults.top_p, 1.0)),
            seed=self.seed,
        )
        stop = tuple(dict.fromkeys((*self.stop, *(() if self.ignore_eos else defaults.stop))))
        return Resolved(sampling, stop, self._rules(defaults))

    def _rules(self, defaults: Defaults) -> LogitRules | None:
        rules = LogitRules(
            presence_penalty=float(_first(self.presence_penalty, 0.0)),
            frequency_penalty=float(_first(self.frequency_penalty, 0.0)),
            repetition_penalty=float(_first(self.repetition_penalty, defaults.repetition_penalty, 1.0)),
            min_p=float(_first(self.min_p, defaults.min_p, 0.0)),
            logit_bias=self.logit_bias,
        )
        return None if rules == LogitRules() else rules


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
