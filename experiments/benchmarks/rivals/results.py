"""Runs ways of writing texts in turn, and what comes of it: medians, ratios, and a table."""

import asyncio
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from experiments.benchmarks.rivals.catalogue import OWN_ENGINE
from experiments.benchmarks.rivals.ours import NGRAM, PLAIN, WAYS
from experiments.benchmarks.rivals.running import RivalFailed, Written
from experiments.benchmarks.rivals.worker import Request
from experiments.harness.benchmark import in_turn, note

ENGINE, GENAI = OWN_ENGINE.way, "genai"
WANTED = {"engine": 0.95, "engine_both": 0.90, "ngram": 0.98}

Way: TypeAlias = Callable[[Request], Written]
Rates: TypeAlias = dict[str, dict[str, list[float]]]
"""Tokens per second in each repetition, by way and by how many texts are written at once ("1", "8")."""


@dataclass
class Turns:
    """Ways that take turns."""

    ways: dict[str, Way]
    missing: dict[str, str]  # by way, why it does not run; ways that fail are added
    at_once: Mapping[str, int]  # how many texts, by key
    rates: Rates = field(default_factory=dict)
    num_tokens: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    own_rates: Rates = field(default_factory=dict)  # of each text, geometric means, where the way tells them

    async def measure(self, request: Request, warm_up: Request, repetitions: int) -> None:
        """Has all ways write what is requested, each time beginning with another one."""
        for number in range(repetitions + 1):
            for key, at_once in self.at_once.items():
                wanted = replace(request if number else warm_up.part(slice(at_once)), at_once=at_once)
                for way in in_turn(self.ways, number):
                    await self._write(way, key, wanted, counts=number > 0)

    async def _write(self, way: str, key: str, request: Request, *, counts: bool) -> None:
        try:
            written = await asyncio.to_thread(self.ways[way], request)
        except RivalFailed as error:
            self.missing[way] = f"it failed: {error}"
            note(f"{way}: {self.missing[way]}")
            for by_way in (self.ways, self.rates, self.num_tokens, self.own_rates):
                by_way.pop(way, None)
            return
        if counts:
            num_tokens = sum(map(len, written.tokens))
            self.rates.setdefault(way, {}).setdefault(key, []).append(num_tokens / written.seconds)
            self.num_tokens.setdefault(way, {}).setdefault(key, []).append(num_tokens)
            if written.own_rate is not None:
                self.own_rates.setdefault(way, {}).setdefault(key, []).append(written.own_rate)
            note(f"T={request.temperature:g}, {key} at once: {way} {num_tokens / written.seconds:.1f} tokens/s")


def summary(rates: Rates, keys: Sequence[str] = ("1", "8")) -> dict[str, Any]:
    """Returns medians and ratios of them; a ratio is None where something of it did not run."""
    median = {way: {key: statistics.median(each) for key, each in by_key.items()} for way, by_key in rates.items()}
    rivals = [way for way in median if way not in (*WAYS, ENGINE)]
    return {
        "tokens_per_s": median,
        "engine": {key: _ratio(median, key, [ENGINE], [GENAI]) for key in keys},
        "ngram": {key: _ratio(median, key, [NGRAM], [PLAIN]) for key in keys},
        **{f"ratio_{key}": _ratio(median, key, WAYS, rivals) for key in keys},
    }


def _ratio(
    median: Mapping[str, Mapping[str, float]], key: str, ways: Sequence[str], beside: Sequence[str]
) -> float | None:
    """Returns the best of some ways / the best of others."""
    best, of_others = (
        max((median[way][key] for way in some if key in median.get(way, {})), default=None) for some in (ways, beside)
    )
    return None if best is None or of_others is None else best / of_others


def table(rates: Rates, found: Mapping[str, Any], suffix: str) -> Iterator[str]:
    """Yields the lines of a table. found: a summary of the rates. suffix: of the keys under which it is reported."""
    for way, by_key in rates.items():
        cells = (
            f"{key} at once {found['tokens_per_s'][way][key]:>7.1f} ({min(each):.1f} to {max(each):.1f})"
            for key, each in by_key.items()
        )
        yield f"  {way:<28} " + "   ".join(cells)
    for name, value in list(found.items())[1:]:
        for key, ratio in value.items() if isinstance(value, dict) else [("", value)]:
            words = "not known: something of it is missing" if ratio is None else f"{ratio:.2f}"
            least = WANTED.get(f"{name}{suffix}")
            wanted = f"   (wanted: at least {least})" if least is not None and ratio is not None else ""
            yield f"  {name + suffix + (key and f', {key} at once'):<28} {words}{wanted}"
