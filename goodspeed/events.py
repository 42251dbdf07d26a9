"""What the commands print: JSON events, one a line, on standard output; logs on standard error.

Under `--json` the last line of standard output is one JSON object with the result. Knows nothing about what the
events mean.
"""

import json
import logging
import sys
from typing import Any, TextIO

LOG_LEVELS = ("debug", "info", "warning", "error")


def setup_logging(level: str) -> None:
    """Log lines on standard error, with the process's role in front."""
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )


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
