"""A rival's process, as the benchmark sees it."""

import json
import os
import select
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import Any

from experiments.benchmarks.rivals.catalogue import ROOT, Rival
from experiments.benchmarks.rivals.worker import Request, Settings

LIMIT_S = 900.0  # vLLM compiles for minutes
END_S = 10.0

MAX_CHARACTERS = 400


class RivalFailed(Exception):
    """Says in one line why a rival did not load, or did not write."""

    def __init__(self, why: str) -> None:
        super().__init__(shorten(why, MAX_CHARACTERS, placeholder=" ..."))


@dataclass(frozen=True)
class Written:
    """The tokens of each prompt's text, without ends, the seconds of all, and of each from its request on, if known."""

    tokens: list[list[int]]
    seconds: float
    each_s: Sequence[float] = ()

    @property
    def own_rate(self) -> float | None:
        """Geometric mean of the texts' own tokens per second, whose logarithms' sum is their log-utility."""
        rates = [len(own) / seconds for own, seconds in zip(self.tokens, self.each_s, strict=False) if own]
        return statistics.geometric_mean(rates) if rates else None


class Running:
    """A loaded rival. It is stopped while others have their turn, so that it takes no time from them."""

    def __init__(self, rival: Rival, settings: Settings) -> None:
        """Raises RivalFailed if it cannot be loaded."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        words = [str(rival.python), "-m", "experiments.benchmarks.rivals.worker", rival.module]
        environment = {**os.environ, "OMP_NUM_THREADS": str(settings.num_threads), "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        try:
            self.version = str(self._ask(asdict(settings))["version"])
        except BaseException:
            self.end()
            raise
        self._signal(signal.SIGSTOP)

    def write(self, request: Request) -> Written:
        """Raises RivalFailed if it does not write; it has ended then."""
        self._signal(signal.SIGCONT)
        try:
            answer = self._ask(asdict(request))
            written = Written(answer["tokens"], answer["seconds"])
            if not any(written.tokens):
                raise RivalFailed("all of its texts are empty")
        except RivalFailed:
            self._signal(signal.SIGKILL)
            raise
        self._signal(signal.SIGSTOP)
        return written

    def end(self) -> None:
        self._signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=END_S)
        self._signal(signal.SIGKILL)  # and whatever it has started
        self._process.communicate()
        self._errors.close()

    def _ask(self, line: dict[str, Any]) -> dict[str, Any]:
        process, text = self._process, ""
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], LIMIT_S)[0]:
                raise RivalFailed(f"it did not answer within {LIMIT_S:g} s")
            text = process.stdout.readline()
        if not text:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").split("\n")
            raise RivalFailed(f"it ended: {next(filter(str.strip, reversed(said)), 'it said nothing')}")
        answer: dict[str, Any] = json.loads(text)
        if "failed" in answer:
            raise RivalFailed(answer["failed"])
        return answer

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
