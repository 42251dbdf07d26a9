"""Sampling defaults, rules for logits and stop strings for requests that leave them out.

They are the target's, from its generation_config.json, else the API's. The verify node sends the target's in its
Welcome.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

from goodspeed.engine.tokenizing.generation_settings import GenerationSettings
from goodspeed.wire.generation import TokenBias
from goodspeed.wire.handshake import Defaults, Welcome
from goodspeed.wire.messages import LogitRules, Sampling


def of_checkpoint(settings: GenerationSettings, *, chat: bool) -> Defaults:
    """Returns a checkpoint's defaults as the wire's struct."""
    return Defaults(**asdict(settings.chats if chat else settings.completions))


def known(welcome: Welcome | None, settings: GenerationSettings, *, chat: bool) -> Defaults:
    """Returns the target's defaults; without a Welcome yet, those of the local model's `settings`."""
    if welcome is None:
        return of_checkpoint(settings, chat=chat)
    return welcome.chat_defaults if chat else welcome.defaults


def sampling(
    defaults: Defaults, *, temperature: float | None, top_k: int | None, top_p: float | None, seed: int
) -> Sampling:
    """An argument of None takes the value in `defaults`; if that is None too: temperature 1.0, top_k 0, top_p 1.0.

    The last two mean off.
    """
    return Sampling(
        temperature=float(_first(temperature, defaults.temperature, 1.0)),
        top_k=int(_first(top_k, defaults.top_k, 0)),
        top_p=float(_first(top_p, defaults.top_p, 1.0)),
        seed=seed,
    )


def stops(defaults: Defaults, own: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns all strings that end a text: the request's own, then the target's."""
    return tuple(dict.fromkeys((*own, *defaults.stop)))


class Resolved(NamedTuple):
    """Sampling of one text, and the strings that end it, under one target's defaults."""

    sampling: Sampling
    stop: tuple[str, ...] = ()
    rules: LogitRules | None = None  # None: they change nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """Sampling and end of one text, as far as its request says; None leaves it to the defaults."""

    seed: int
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()  # strings that end the text
    adds_stops: bool = True  # the stop strings of the defaults end it, too
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    min_p: float | None = None
    logit_bias: tuple[TokenBias, ...] = ()

    def resolve(self, defaults: Defaults) -> Resolved:
        """Returns sampling and end of the text under these defaults."""
        own = sampling(defaults, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)
        return Resolved(own, stops(defaults, self.stop) if self.adds_stops else self.stop, self._rules(defaults))

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
