"""`goodspeed chat` with real nodes."""

import io
import json
import sys

import pytest

from goodspeed.app import cli
from goodspeed.app.chat.options import KEY_VARIABLE

pytestmark = pytest.mark.nodes


def test_a_conversation(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The text is the same with and without drafts."""
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    told = []
    for speculate in ([], ["--no-speculate"]):
        words = ["--json", "--max-tokens", "24", "--seed", "5", *speculate]
        monkeypatch.setattr(sys, "argv", ["goodspeed", "chat", "--url", url, *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO("What is the capital of France?\nAnd of Spain?\n"))
        assert cli.main() == 0
        told.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    with_drafts, without = told
    assert with_drafts[-1]["messages"] == without[-1]["messages"]
    for events, is_drafted in ((with_drafts, True), (without, False)):
        for turn, answer in enumerate(events[-1]["answers"]):
            shown = [event["text"] for event in events if event.get("event") == "text" and event["turn"] == turn]
            assert "".join(shown) == answer["text"]
            assert answer["num_tokens"] == 24 or answer["finish_reason"] == "stop"
            assert (answer["num_accepted"] > 0) == is_drafted
