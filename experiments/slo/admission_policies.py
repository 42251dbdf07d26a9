"""Policies of the experiment on SLOs-Serve: settings of simulated nodes, and the paper's baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.rivals import Kind, alone, parted
from experiments.simulation.open_loop.service import Service

OURS = "dp"
NO_DRAFTS, NO_PROMISES = "dp, no drafts", "none"
POLICIES: dict[str, dict[str, Any]] = {
    OURS: {"admission": "dp"},
    NO_PROMISES: {"admission": "none"},
    NO_DRAFTS: {"admission": "dp", "max_draft": 0},
}
"""Ours, and what it is without one of its parts: nothing promised, and no drafts."""

VLLM, VLLM_SPEC, SARATHI, DISTSERVE = "vLLM", "vLLM (Spec)", "Sarathi", "DistServe"

LENGTHS = (1, 2, 3, 4, 5, 6)
"""Fixed numbers of drafted tokens that vLLM is tried with."""

CHUNKS = (256, 512, 1024, 2048)
"""Tokens of a round that Sarathi is tried with, beside those that keep the tightest TPOT: ten tokens have to be in
time, so a round may take longer."""

SHAPES = ((1, 1), (2, 1), (1, 2))
"""Numbers of DistServe's devices for prompts and for texts."""

Variant: TypeAlias = tuple[int, Callable[[Sequence[Arrival]], Service]]
"""The number of GPUs, and what serves requests with them."""


def variants(kind: Kind, tightest: int) -> Mapping[str, Mapping[str, Variant]]:
    """Every baseline in each of its variants, of which the best one counts.

    Each is tried with memory reserved for whole texts, and with preemption. tightest: tokens of a round of the tightest
    TPOT.
    """
    found: dict[str, dict[str, Variant]] = {VLLM: {}, VLLM_SPEC: {}, SARATHI: {}, DISTSERVE: {}}
    for reserves in (True, False):
        memory = "reserved" if reserves else "preempted"
        vllm = replace(kind, reserves=reserves, num_drafted=0)
        found[VLLM][memory] = 1, partial(alone, vllm)
        for chunk in sorted({tightest, *CHUNKS}):
            found[SARATHI][f"{chunk}, {memory}"] = 1, partial(alone, replace(vllm, decode_first=chunk))
        for length in LENGTHS:
            drafting = replace(vllm, num_drafted=length)
            found[VLLM_SPEC][f"{length}, {memory}"] = 1, partial(alone, drafting)
        for shape in SHAPES:
            name = f"{shape[0]}:{shape[1]}, {memory}"
            found[DISTSERVE][name] = sum(shape), partial(parted, vllm, *shape)
    return found


BASELINES = (VLLM, VLLM_SPEC, SARATHI, DISTSERVE)
