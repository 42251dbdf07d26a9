"""What the commands print: JSON events, one a line, on standard output; logs on standard error.

Under `--json` the last line of standard output is one JSON object with the result. Knows nothing about what the
events mean.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

LOG_LEVELS = ("debug", "info", "warning", "error")


def setup_logging(level: str) -> None:
    """Log lines on standard error, for people and for programs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class LineFormatter(logging.Formatter):
    """One line a record, `key=value` for each field (logfmt); what is given as `extra=` comes after the message."""

    OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        line = " ".join(f"{name}={value}" for name, value in fields.items())
        line += f" message={json.dumps(record.getMessage(), ensure_ascii=False)}"
        extra = {name: value for name, value in vars(record).items() if name not in self.OWN}
        if record.exc_info:
            extra["exception"] = self.formatException(record.exc_info)
        return line + "".join(f" {name}={_logfmt(value)}" for name, value in extra.items())


def _logfmt(value: object) -> str:
    """Bare where that is clear, else in quotes."""
    text = str(value)
    return text if re.fullmatch(r"[\w.:/+@%-]+", text) else json.dumps(text, ensure_ascii=False)


class EventLog:
    """Writes events as JSON lines; silent unless enabled."""

    def __init__(self, *, enabled: bool, stream: TextIO | None = None) -> None:
        self.enabled = enabled
        self._stream = stream

    def write(self, event: str, **fields: Any) -> None:
        if self.enabled:
            print_json({"event": event, **fields}, self._stream)


def print_json(value: dict[str, Any], stream: TextIO | None = None) -> None:
    """One JSON object on a line of its own, at once."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), file=stream or sys.stdout, flush=True)
