"""Draft nodes of live runs count as those of other machines."""

import io
from types import SimpleNamespace
from typing import Any

from experiments.served import running
from verify_node.config import VerifyConfig


def test_draft_nodes_are_taken_to_be_elsewhere(monkeypatch):
    """Else the verify node would try whether it is faster without the draft models of its own machine."""
    forked: list[Any] = []

    def fork(*given):
        forked.append(given)
        return SimpleNamespace(stdout=io.StringIO())

    monkeypatch.setattr(running, "fork", fork)
    running.Verify(["--model=m"], 1)
    ((_, _, changed),) = forked
    ((name, elsewhere),) = changed.items()
    assert VerifyConfig(model="m").core.is_shared
    monkeypatch.setattr(name, elsewhere)
    assert not VerifyConfig(model="m").core.is_shared
