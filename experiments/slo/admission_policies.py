"""Policies of the experiment on SLOs-Serve, as settings of a simulated world."""

from __future__ import annotations

from typing import Any

from experiments.simulation.open_loop.baselines import DecodeFirst, PrefillFirst
from experiments.slo.service_policies import PLAIN, fixed

LENGTHS = (2, 4)
"""Fixed numbers of drafted tokens that the baselines are tried with; every round waits for all drafts."""

FAMILIES: dict[str, dict[str, Any]] = {
    "prefill first": {"core_kind": PrefillFirst, "max_round_tokens": 4096},
    "chunked prefill": {"core_kind": DecodeFirst},
}
"""vLLM, whose rounds of prompts have up to 2,048 tokens, and Sarathi, whose rounds end within the tightest TPOT."""

BASELINES: dict[str, dict[str, Any]] = {
    name: drafts | changes
    for family, changes in FAMILIES.items()
    for name, drafts in {family: PLAIN, **{f"{family}, fixed {length}": fixed(length) for length in LENGTHS}}.items()
}

OURS = "dp"
EDF, NO_DRAFTS, NO_PROMISES = "edf", "dp, no drafts", "none"
ABLATIONS: dict[str, dict[str, Any]] = {
    EDF: {"admission": "edf"},
    NO_PROMISES: {"admission": "none"},
    NO_DRAFTS: {"admission": "dp", "max_draft": 0},
}
"""Another rule of admission, nothing promised, and no drafts."""

POLICIES = BASELINES | {OURS: {"admission": "dp"}} | ABLATIONS
"""Those of the capacities. Another row is another policy of every scenario."""


def family(policy: str) -> str:
    """The baseline that a policy belongs to, with whatever it drafts."""
    return policy.partition(", fixed ")[0]
