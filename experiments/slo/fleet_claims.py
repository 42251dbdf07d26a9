"""Claims about fleets, beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from experiments.harness.experiment import Finding

Row: TypeAlias = dict[str, Any]

MOST_ERROR = 0.1
PAPER = {"chatbot": {2: 2.18, 3: 3.36, 4: 4.61}, "coder": {4: 6.2}}
"""Capacity of so many replicas over that of one, by the paper on SLOs-Serve."""

CURVE, CHATBOT, CODER = "replicas", "chatbot", "coder"
FITS = "fits"


def facts(rows: Sequence[Row]) -> dict[str, Any]:
    """The capacities by study, routing and number of replicas."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        found.setdefault(row["study"], {}).setdefault(row["routing"], {})[row["replicas"]] = row["capacity"]
    told: dict[str, Any] = {"capacity": found}
    if curve := found.get(CURVE, {}).get(FITS):
        told |= {"replicas": curve, "linear_error": linear_error(curve), "per_replica": per_replica(curve)}
    for study in PAPER:
        if study in found:
            told[study] = {routing: ratios(own, found[study]) for routing, own in found[study].items()}
    told["policies"] = {study: own for study, own in found.items() if study not in (CURVE, *PAPER)}
    return told


def linear_error(capacities: dict[int, float]) -> float:
    """Returns by how much capacities differ at most from that many times one replica's, relative to it."""
    return max(abs(capacity / (number * capacities[1]) - 1.0) for number, capacity in capacities.items())


def per_replica(capacities: dict[int, float]) -> dict[int, float]:
    return {number: capacity / number for number, capacity in capacities.items()}


def ratios(own: dict[int, float], study: dict[str, dict[int, float]]) -> dict[int, float]:
    """Capacities over a single replica's, which knows no routing."""
    alone = next(found[1] for found in study.values() if 1 in found)
    return {number: capacity / alone for number, capacity in own.items() if number > 1}


def findings(told: dict[str, Any]) -> list[Finding]:
    found = []
    if "replicas" in told:
        for number, each in told["per_replica"].items():
            found.append(Finding(f"{number} replicas: requests/s of each", each))
        found.append(Finding.at_most("farthest from linear", told["linear_error"], MOST_ERROR))
    for study, papers in PAPER.items():
        for routing, own in told.get(study, {}).items():
            for number, ratio in own.items():
                what, paper = f"{study}, {routing}: {number} replicas over one", papers.get(number)
                if paper is not None and routing == FITS:
                    found.append(Finding.at_least(what, ratio, paper, paper))
                else:
                    found.append(Finding(what, ratio, paper))
    for study, by_routing in told["policies"].items():
        for routing, own in by_routing.items():
            found += [Finding(f"{study}, {routing}: {n} replicas, requests/s", value) for n, value in own.items()]
    for routing, row in told["fairness"].items():
        found.append(Finding(f"{routing}: Jain's index of {row['clients']} clients", row["jain"]))
        found.append(Finding(f"{routing}: the worst client's goodput over the mean", row["worst"]))
    million = told["million"]
    found.append(Finding(f"{million['draft_nodes']} draft nodes: replicas", million["replicas"]))
    return found
