"""Policies of the experiments with open-loop arrivals, as settings of a simulated world. Knows nothing of requests."""

from __future__ import annotations

from typing import Any

from experiments.simulation.open_loop.prefill_first import PrefillFirst

PLAIN: dict[str, Any] = {"policy": "fixed", "selection": "none", "max_draft": 0}
"""No drafts; prompts are read in chunks, beside the texts that go on (Sarathi)."""

WAITED_FOR: dict[str, Any] = {"rounds": "barrier", "draft_ahead": False}
"""Drafts are made before each round, and every round waits for them: as where both models share their devices."""

TIMED: dict[str, Any] = {"weighs_time": True, "selection": "odds"}
"""What drafts are worth is weighed against their time, and drafted tokens are chosen by their odds."""


def fixed(length: int) -> dict[str, Any]:
    """Everybody drafts so many tokens."""
    return {"policy": "fixed", "selection": "none", "max_draft": length} | WAITED_FOR


OURS = "slo"
BASELINES: dict[str, dict[str, Any]] = {
    "prefill first": PLAIN | {"core_kind": PrefillFirst},
    "chunked prefill": PLAIN,
    **{f"fixed {length}": fixed(length) for length in (4, 6, 8)},
    "fixed 4, beside": fixed(4) | {"rounds": "continuous", "draft_ahead": True},
}
"""vLLM, Sarathi, vLLM with drafts of a fixed length, and that with what ours has: drafting beside the rounds."""

POLICIES = BASELINES | {
    "gradient, barrier": TIMED | WAITED_FOR | {"policy": "gradient"},
    "slo, barrier": TIMED | WAITED_FOR | {"policy": "slo"},
    "gradient": TIMED | {"policy": "gradient"},
    OURS: TIMED | {"policy": "slo"},
}
"""Those of AdaServe's figures. Another row is another policy of every figure."""
