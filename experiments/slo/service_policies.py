"""Policies of the experiments with open-loop arrivals, as settings of a simulated world."""

from __future__ import annotations

from typing import Any

from experiments.simulation.settings import PAPER

PLAIN: dict[str, Any] = {"policy": "fixed", "max_draft": 0}
"""No drafts; prompts are read in chunks, beside the texts that go on (Sarathi)."""


def fixed(length: int) -> dict[str, Any]:
    """Everybody drafts so many tokens, and every round waits for them: as where both models share their devices."""
    return PAPER | {"policy": "fixed", "max_draft": length}
