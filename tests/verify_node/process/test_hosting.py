"""A hosted verify node that cannot start tells why, in the words that its command would print."""

from queue import Queue
from typing import Any

import pytest

from verify_node import hosting


def test_wrong_options_are_told_in_the_parsers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "prepare", lambda level, name: None)  # it would change this process's logging
    member: Any = None
    told = Queue[str]()
    hosting.Hosted(["--modle", "tiny-target"], member, told.put)
    why = told.get(timeout=60)
    assert why == "goodspeed-verify: unknown option --modle; did you mean --model? See goodspeed-verify --help"
