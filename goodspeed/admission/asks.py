"""What a request asks to be promised, and what is refused as impossible. Knows nothing about whether it can be kept."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, NamedTuple

from goodspeed.admission.budget import Pace
from goodspeed.errors import ConfigError

PACE = "its longest round and its load must be finite and above 0"


class Ask(NamedTuple):
    """A request that asks for a promise: its first token by a deadline, and the others at a rate after that."""

    deadline_s: float  # d, seconds from now until its first token is due; below 0 it cannot be kept
    prompt_tokens: int  # p, those that are still to be read
    tpot_s: float | None  # tau, seconds per token after the deadline; None: it is promised no rate
    pages: int = 0  # m, of memory, in the worst case; what is reserved already does not count
    value: float = 1.0  # v, of keeping it; > 0
    promised: bool = False  # it was promised before, and stays: a forced request in the paper's words
    counted_on: Pace | None = None  # how it decodes with its drafts, if they are counted on

    @property
    def pace(self) -> Pace | None:
        """How it decodes after its deadline; None where it is promised no rate."""
        if self.tpot_s is None:
            return None
        return self.counted_on or Pace.plain(self.tpot_s)


def check(asks: Sequence[Ask], pages: float | None) -> None:
    """Raises ConfigError for the first number that is impossible. pages: that are free; None for no bound."""
    for place, ask in enumerate(asks):
        if not (
            isfinite(ask.deadline_s)
            and _is_count(ask.prompt_tokens)
            and _is_count(ask.pages)
            and 0.0 < ask.value < float("inf")
            and (ask.tpot_s is None or 0.0 < ask.tpot_s < float("inf"))
            and (ask.counted_on is None or _is_pace(ask.counted_on))
        ):
            raise ConfigError(f"ask {place} is impossible: {_wrong(ask)}")
    if pages is not None and not _is_count(pages):
        raise ConfigError(f"pages is {pages}; it must be 0 or more, or None for no bound")


def checked(decoding: Iterable[float | Pace]) -> list[Pace]:
    """The paces of running sessions, or of their TPOTs; ConfigError for one that is impossible."""
    found = []
    for one in decoding:
        if isinstance(one, Pace):
            if not _is_pace(one):
                raise ConfigError(f"a pace in decoding is {one}; {PACE}")
            found.append(one)
        elif _is_positive(one):
            found.append(Pace.plain(one))
        else:
            raise ConfigError(f"a TPOT in decoding is {one} s; each must be finite and above 0")
    return found


def _wrong(ask: Ask) -> str:
    wanted: list[tuple[str, Any, bool, str]] = [
        ("deadline_s", ask.deadline_s, isfinite(ask.deadline_s), "finite"),
        ("prompt_tokens", ask.prompt_tokens, _is_count(ask.prompt_tokens), "finite, and 0 or more"),
        ("tpot_s", ask.tpot_s, ask.tpot_s is None or _is_positive(ask.tpot_s), "finite and above 0, or None"),
        ("pages", ask.pages, _is_count(ask.pages), "finite, and 0 or more"),
        ("value", ask.value, _is_positive(ask.value), "finite and above 0"),
        ("counted_on", ask.counted_on, ask.counted_on is None or _is_pace(ask.counted_on), f"None, or: {PACE}"),
    ]
    return "; ".join(f"{name} is {value} and must be {what}" for name, value, is_right, what in wanted if not is_right)


def _is_pace(pace: Pace) -> bool:
    return _is_positive(pace.round_s) and _is_positive(pace.load) and _is_count(pace.drafted)


def _is_count(value: float) -> bool:
    return 0 <= value < float("inf")


def _is_positive(value: float) -> bool:
    return 0.0 < value < float("inf")
