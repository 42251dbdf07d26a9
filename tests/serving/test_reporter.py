"""What a daemon says to a person: a line for each thing, and not a line for each of a crowd."""

import pytest

from goodspeed.serving.events import BURST, QUIET, Reporter, Sentence


def test_a_line_begins_with_the_commands_name(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter("goodspeed-draft")
    reporter.say("connected to %s", "tcp://127.0.0.1:5555")
    reporter.say_all([Sentence("back after %.1f s", (3.21,)), Sentence("100 % of it", ())])
    said = "goodspeed-draft: connected to tcp://127.0.0.1:5555\ngoodspeed-draft: back after 3.2 s\n"
    assert capsys.readouterr() == ("", said + "goodspeed-draft: 100 % of it\n")


def test_who_wants_it_quiet_hears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Reporter("x", quiet=True).say("connected")
    QUIET.say("connected")
    assert capsys.readouterr() == ("", "")


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
    assert capsys.readouterr().err == f"x: draft node ana connected (lines like this left out before: {left_out})\n"
