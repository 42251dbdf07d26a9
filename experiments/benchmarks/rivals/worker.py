"""A rival's process: loads a model once, then writes texts for whoever asks on its standard input.

`python -m experiments.benchmarks.rivals.worker MODULE` runs with the rival's own Python, which need not have any of our
packages: this module and those of the rivals import the standard library alone, and the rival itself when it is loaded.
Each line is one JSON object. First come the `Settings`; the answer is `{"version": ...}`. Then comes one `Request` each
line; the answer is `{"tokens": [[...], ...], "seconds": ...}`. Any answer can be `{"failed": why}` instead.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module  # noqa: TID251 a module of that room, by the table of rivals
from typing import Any, Protocol, TextIO

ROOM = "experiments.benchmarks.rivals"


@dataclass(frozen=True)
class Settings:
    """A model to load, and how to compute it: with a thread for each core."""

    model: str  # a file or a folder
    cores: list[int]
    num_at_once: int
    drafts: str | None = None  # "ngram" or "model"; None: without
    draft_model: str | None = None
    context: int = 2048  # of one text, with its prompt

    @property
    def num_threads(self) -> int:
        return len(self.cores)


@dataclass(frozen=True)
class Request:
    """Some prompts' texts, so many of them at once, each until it ends or has `max_tokens`."""

    prompts: list[list[int]]
    seeds: list[int]
    at_once: int
    temperature: float
    max_tokens: int
    end_ids: list[int]

    def groups(self) -> Iterator["Request"]:
        """Yields the parts that are written at once."""
        for first in range(0, len(self.prompts), self.at_once):
            yield self.part(slice(first, first + self.at_once))

    def part(self, part: slice) -> "Request":
        return replace(self, prompts=self.prompts[part], seeds=self.seeds[part])


class Rival(Protocol):
    """A loaded rival."""

    version: str

    def write(self, request: Request) -> list[list[int]]:
        """Returns the tokens of each prompt's text; all are written at once. What follows an end does not count."""
        ...


def without_end(tokens: Iterable[int], end_ids: Iterable[int]) -> list[int]:
    """Returns a text's tokens before its end."""
    ends, text = set(end_ids), list[int]()
    for token in tokens:
        if token in ends:
            break
        text.append(token)
    return text


def serve(load: Callable[[Settings], Rival], lines: TextIO, say: Callable[[dict[str, Any]], None]) -> None:
    """Loads a rival as the first line says, and answers each further line until the input ends or it has failed."""
    try:
        rival = load(Settings(**json.loads(lines.readline())))
        say({"version": rival.version})
        for line in lines:
            request, started = Request(**json.loads(line)), time.perf_counter()
            written = [text for group in request.groups() for text in rival.write(group)]
            seconds = time.perf_counter() - started
            say({"tokens": [without_end(text, request.end_ids) for text in written], "seconds": seconds})
    except Exception as error:  # whatever another project's code raises: the parent tells it
        say({"failed": f"{type(error).__name__}: {error}"})
        raise


def load(settings: Settings) -> Rival:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, settings.cores)
    module = sys.argv[1]
    rival: Rival = import_module(f"{ROOM}.{module}").load(settings)
    return rival


def main() -> None:
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the rivals print is no answer
    serve(load, sys.stdin, lambda answer: print(json.dumps(answer), file=own, flush=True))


if __name__ == "__main__":
    main()
