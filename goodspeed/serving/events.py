"""A command's output: JSON events on standard output; logs and status lines for people on standard error.

With `--json` the final line of standard output is one JSON object with the result.
"""

import json
import logging
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from goodspeed.serving import output

DROPPABLE = frozenset({"round", "recorded"})
"""Events that a daemon drops and counts while nobody reads standard output, because there is one per round and rounds
do not wait. All other events are retained: they are few, or results whose producer waits (`output.room`)."""

LOG_LEVELS = ("debug", "info", "warning", "error")

PROGRESS_S = 15.0
"""Seconds between two lines about the same long step."""

BURST, LINES_PER_S = 20.0, 1.0
"""Size and rate of a token bucket per message format. Peers can cause log lines, and must not fill a disk."""

MAX_KINDS = 256


def setup_logging(level: str, name: str) -> None:
    """Sends log lines to standard error, rate-limited unless the level is debug. name: of the command."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(name))
    if level != "debug":
        handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class RateLimitFilter(logging.Filter):
    """Drops lines beyond a rate per message format; the format's next line reports how many were dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, str], tuple[float, float, int]] = {}  # latest time, level, number dropped

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = (record.name, str(record.msg)[:200]), record.created
        said_at, num_said, num_left_out = self._kinds.pop(kind, (now, 0.0, 0))
        num_said = max(0.0, num_said - LINES_PER_S * max(0.0, now - said_at))  # a wall clock can be set back
        is_written = num_said <= BURST - 1
        if is_written and num_left_out:
            vars(record)["num_left_out"] = num_left_out
        self._kinds[kind] = (now, num_said + 1, 0) if is_written else (now, num_said, num_left_out + 1)
        if len(self._kinds) > MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return is_written


class LineFormatter(logging.Formatter):
    """Formats a record like a status line, `NAME: LEVEL: MESSAGE`, and its `extra=` fields after it as logfmt.

    Leaves out names that begin with an underscore: libraries add them to all records of a process, as Ray does.
    """

    OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def __init__(self, name: str) -> None:
        """name: of the command, with which its status lines begin, too."""
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        extra = {name: value for name, value in vars(record).items() if name not in self.OWN and name[0] != "_"}
        extra["time"] = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if record.name.partition(".")[0] != "goodspeed":
            extra["logger"] = record.name
        if record.exc_info:
            extra["exception"] = self.formatException(record.exc_info)
        said = json.dumps(record.getMessage(), ensure_ascii=False)[1:-1].replace('\\"', '"')
        fields = "".join(f" {name}={_logfmt(value)}" for name, value in extra.items())
        return f"{self._name}: {record.levelname.lower()}: {said}{fields}"


def _logfmt(value: object) -> str:
    """Returns a value for logfmt, quoted if necessary."""
    text = str(value)
    return text if re.fullmatch(r"[\w.:/+@%-]+", text) else json.dumps(text, ensure_ascii=False)


class EventLog:
    """Writes events as JSON lines if enabled."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled

    def write(self, event: str, **fields: Any) -> None:
        if self.enabled:
            print_json({"event": event, **fields}, droppable=event in DROPPABLE)


def print_json(value: dict[str, Any], *, droppable: bool = False) -> None:
    """Prints one JSON object on its own line, and flushes. droppable: a daemon may drop the line."""
    is_utf8 = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    line = json.dumps(value, ensure_ascii=not is_utf8, separators=(",", ":"))
    if droppable:
        output.offer(line)
    else:
        print(line, flush=True)


class Sentence(NamedTuple):
    """One status line: a %-format and its values."""

    text: str
    values: tuple[object, ...]


class Reporter:
    """Prints status lines on standard error, prefixed with the command's name; nothing if `quiet`."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name = name
        self._quiet = quiet
        self._rate_limit = RateLimitFilter()

    def say(self, text: str, *values: object) -> None:
        """Prints a line, rate-limited per format, so that peers cannot fill a disk. text: a %-format."""
        record = logging.makeLogRecord({"name": self._name, "msg": text, "args": values})
        if self._quiet or not self._rate_limit.filter(record):
            return
        num_left_out = vars(record).get("num_left_out")
        more = f" (similar lines dropped before: {num_left_out})" if num_left_out else ""
        print(f"{self._name}: {record.getMessage()}{more}", file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, doing: str, *values: object) -> Iterator[None]:
        """Prints what the block does, and every PROGRESS_S for how long it has done so. doing: a %-format."""
        self.say(f"{doing} ...", *values)
        ended = threading.Event()

        def tell() -> None:
            num_s = PROGRESS_S
            while not ended.wait(PROGRESS_S):
                self.say(f"still {doing} (%.0f s so far)", *values, num_s)
                num_s += PROGRESS_S

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()

    def say_all(self, sentences: Iterable[Sentence]) -> None:
        for sentence in sentences:
            self.say(sentence.text, *sentence.values)


QUIET = Reporter("", quiet=True)
"""Prints nothing; for nodes in tests and benchmarks."""
