"""Policies of the experiments with open-loop arrivals, as settings of a simulated world."""

from __future__ import annotations

from typing import Any

from experiments.simulation.open_loop.baselines import PrefillFirst
from experiments.simulation.settings import PAPER

PLAIN: dict[str, Any] = {"policy": "fixed", "max_draft": 0}
"""No drafts; prompts are read in chunks, beside the texts that go on (Sarathi)."""


def fixed(length: int) -> dict[str, Any]:
    """Everybody drafts so many tokens, and every round waits for them: as where both models share their devices."""
    return PAPER | {"policy": "fixed", "max_draft": length}


OURS = "gradient"
BASELINES: dict[str, dict[str, Any]] = {
    "prefill first": PLAIN | {"core_kind": PrefillFirst},
    "chunked prefill": PLAIN,
    **{f"fixed {length}": fixed(length) for length in (4, 6, 8)},
}
"""vLLM, Sarathi, and vLLM with drafts of a fixed length."""

BARRIER = "gradient, barrier"
POLICIES: dict[str, dict[str, Any]] = BASELINES | {BARRIER: PAPER, OURS: {}}
"""Those of AdaServe's figures: also Eq. (5) as in GoodSpeed's paper, and ours. Another row is another policy of all."""
