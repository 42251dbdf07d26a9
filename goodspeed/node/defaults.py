"""Sampling defaults and stop strings for requests that leave them out.

They are the target's, from its generation_config.json, else the API's. The verify node sends the target's in its
Welcome. Knows nothing about HTTP, files or models' weights.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from goodspeed.engine.tokenizing.generation_settings import GenerationSettings
from goodspeed.wire.handshake import Defaults, Welcome
from goodspeed.wire.messages import Sampling


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """How one text is to be sampled and where it ends, as far as its request says; None leaves it to the defaults."""

    seed: int
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()  # strings that end the text
    adds_stops: bool = True  # the stop strings of the defaults end it, too

    def resolve(self, defaults: Defaults) -> tuple[Sampling, tuple[str, ...]]:
        """The sampling and the stop strings of the text, where these defaults hold."""
        own = sampling(defaults, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)
        return own, stops(defaults, self.stop) if self.adds_stops else self.stop


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
