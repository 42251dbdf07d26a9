"""Events, log lines and status lines: one a line, whatever is in them, and not one for each of a crowd."""

import io
import json
import logging
import sys
import threading
from typing import Any

import pytest

from goodspeed.serving import events
from goodspeed.serving.events import BURST, MAX_KINDS, EventLog, LineFormatter, RateLimitFilter, Reporter, Sentence


def log_line(message: str, *arguments: object, extra: dict[str, Any] | None = None, error: bool = False) -> str:
    """Returns the line of one record of 1970."""
    logger = logging.getLogger("goodspeed.test")
    exc_info = sys.exc_info() if error else None
    record = logger.makeRecord(logger.name, logging.WARNING, "file", 1, message, arguments, exc_info, extra=extra)
    record.created = 1.5
    return LineFormatter("goodspeed-draft").format(record)


def test_a_log_line() -> None:
    expected = "goodspeed-draft: warning: 3 were 'lost' time=1970-01-01T00:00:01.500+00:00"
    assert log_line("%d were %r", 3, "lost") == expected


def test_a_long_step_tells_for_how_long(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told = threading.Event()

    class Told(Reporter):
        def say(self, text: str, *values: object) -> None:
            super().say(text, *values)
            if text.startswith("still"):
                told.set()

    monkeypatch.setattr(events, "PROGRESS_S", 0.01)
    with Told("name").progress("loading %s", "a model"):
        assert told.wait(10.0)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "name: loading a model ..."
    assert second == "name: still loading a model (0 s so far)"
    told.clear()
    assert not told.wait(0.05)  # it is over


def test_a_log_line_is_one_line_and_names_other_libraries() -> None:
    record = logging.makeLogRecord({"name": "uvicorn.error", "levelname": "ERROR", "msg": 'a "b"\nc\x1b', "created": 0})
    said = 'goodspeed: error: a "b"\\nc\\u001b time=1970-01-01T00:00:00.000+00:00 logger=uvicorn.error'
    assert LineFormatter("goodspeed").format(record) == said


def test_fields_of_a_log_line_are_in_quotes_where_they_must() -> None:
    extra = {"peer": "ana-1", "num": 3, "share": 0.5, "endpoint": "tcp://127.0.0.1:1", "what": 'a "b"\nc=d', "no": ""}
    line = log_line("lost", extra=extra)
    assert 'lost peer=ana-1 num=3 share=0.5 endpoint=tcp://127.0.0.1:1 what="a \\"b\\"\\nc=d" no="" time=' in line


def test_a_traceback_stays_on_the_line() -> None:
    try:
        raise ValueError("wrong\nnumber")
    except ValueError:
        line = log_line("it failed", error=True)
    assert len(line.splitlines()) == 1
    traceback = json.loads(line.split(" exception=")[1])
    assert traceback.startswith("Traceback")
    assert traceback.endswith("ValueError: wrong\nnumber")


@pytest.mark.parametrize("enabled", [True, False])
def test_events_are_json_lines_when_wanted(enabled: bool, capsys: pytest.CaptureFixture[str]) -> None:
    EventLog(enabled=enabled).write("tokens", text="a\nü", num=2)
    assert capsys.readouterr().out == ('{"event":"tokens","text":"a\\nü","num":2}\n' if enabled else "")


def test_json_is_valid_where_the_stream_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream := io.TextIOWrapper(io.BytesIO(), "ascii", "backslashreplace"))
    EventLog(enabled=True).write("tokens", text="é😀")
    stream.seek(0)
    assert json.loads(stream.read())["text"] == "é😀"


def test_what_is_said_again_and_again_is_left_out_and_counted() -> None:
    """A peer that sends what is refused, by ever new names, would fill the disk with it."""
    seldom, logger = RateLimitFilter(), logging.getLogger("goodspeed.test")

    def written(at: float, what: str, number: int = 0) -> logging.LogRecord | None:
        extra = {"peer": f"peer-{number}"}
        record = logger.makeRecord(logger.name, logging.WARNING, "file", 1, what, (), None, extra=extra)
        record.created = at
        return record if seldom.filter(record) else None

    assert sum(written(100.0, "refused a message", number) is not None for number in range(1000)) == 20
    assert written(100.0, "another") is not None
    assert written(100.5, "refused a message") is None
    later = written(101.1, "refused a message")
    assert later is not None
    assert "peer=peer-0 num_left_out=981 " in LineFormatter("goodspeed").format(later)
    assert sum(written(200.0, "refused a message") is not None for _ in range(30)) == 20
    assert sum(written(10.0, "refused a message") is not None for _ in range(30)) == 0
    assert written(12.0, "refused a message") is not None, "the wall clock was set back by more than a minute"
    for number in range(2 * MAX_KINDS):
        written(300.0, f"kind {number}")
    assert len(seldom._kinds) == MAX_KINDS


def test_a_status_line_begins_with_the_commands_name(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter("goodspeed-draft")
    reporter.say("connected to %s", "tcp://127.0.0.1:5555")
    reporter.say_all([Sentence("back after %.1f s", (3.21,)), Sentence("100 % of it", ())])
    events.QUIET.say("connected")
    said = "goodspeed-draft: connected to tcp://127.0.0.1:5555\ngoodspeed-draft: back after 3.2 s\n"
    assert capsys.readouterr() == ("", said + "goodspeed-draft: 100 % of it\n")


def test_a_crowd_does_not_fill_a_disk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """However many peers come by whatever names, and whatever else is said still is."""
    now = 1000.0
    monkeypatch.setattr("logging.time.time", lambda: now)
    monkeypatch.setattr("logging.time.time_ns", lambda: int(now * 1e9), raising=False)
    reporter = Reporter("x")
    for number in range(10_000):
        reporter.say("draft node %s connected", f"peer-{number}")
    reporter.say("stopping")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == BURST + 1
    assert lines[-1] == "x: stopping"
    now += 5.0
    reporter.say("draft node %s connected", "ana")
    left_out = 10_000 - int(BURST)
    assert capsys.readouterr().err == f"x: draft node ana connected (similar lines dropped before: {left_out})\n"
