"""What holds for a text where its request does not say: the word of the target's makers, else the API's own default.

The verify node tells the former in its Welcome. Knows nothing about requests over HTTP, files or models.
"""

from collections.abc import Iterable
from dataclasses import asdict

from goodspeed.engine.generation_settings import GenerationSettings
from goodspeed.messages import Defaults, Sampling, Welcome


def of_checkpoint(settings: GenerationSettings, *, chat: bool) -> Defaults:
    """As the wire has them."""
    return Defaults(**asdict(settings.chats if chat else settings.completions))


def known(welcome: Welcome | None, settings: GenerationSettings, *, chat: bool) -> Defaults:
    """The target's; until it has been seen, those of the model whose `settings` are at hand."""
    if welcome is None:
        return of_checkpoint(settings, chat=chat)
    return welcome.chat_defaults if chat else welcome.defaults


def sampling(
    defaults: Defaults, *, temperature: float | None, top_k: int | None, top_p: float | None, seed: int
) -> Sampling:
    """None of what is given is what the defaults say, and 1.0, 0 (off) and 1.0 (off) where they do not."""
    return Sampling(
        temperature=float(_first(temperature, defaults.temperature, 1.0)),
        top_k=int(_first(top_k, defaults.top_k, 0)),
        top_p=float(_first(top_p, defaults.top_p, 1.0)),
        seed=seed,
    )


def stops(defaults: Defaults, own: Iterable[str] = ()) -> tuple[str, ...]:
    """All strings that end a text: its request's own and the target's."""
    return tuple(dict.fromkeys((*own, *defaults.stop)))


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
