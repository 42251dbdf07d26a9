"""Real chats of a real model: what each way of drafting brings beside no drafts, at the same nodes and in one run."""

import argparse
import os
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from experiments.benchmarks import peers
from experiments.benchmarks.nodes.processes import http_nodes
from experiments.benchmarks.rivals.ours import PLAIN, Ours
from experiments.benchmarks.rivals.results import Turns, Way
from goodspeed.embedded.models import PACKAGED
from goodspeed.serving.options import draft_words

DRAFTERS = {"ngram": None, "same_size": "smollm2", "smollm2-draft": "smollm2-draft"}
"""Drafters by name: a model at each user's draft node; None: n-grams of the text itself."""

LEAST, LEAST_BUSY = 0.98, 0.95
"""Wanted tokens per second with drafts / without, in every case; beside a busy process."""


def is_real(target: str) -> bool:
    return target in PACKAGED


async def measure(options: argparse.Namespace, target: str) -> dict[str, Any]:
    """Asks the questions of `peers`, one after the other and all at once, without drafts and with those of a drafter.

    The verify node has a core, all draft nodes another one. Nobody has a history or a prefix cache. Returns medians of
    tokens per second by case, and with drafts / without: `never_worse` of all tokens until the last chat ends,
    `own_speed` of the geometric mean of the chats' own tokens per second, which the policy maximises.
    """
    at_once = {"1": 1, str(options.clients): options.clients}
    asked = {"target": target, "questions": options.texts, "at_once": at_once, "max_tokens": options.answer}
    request, warm_up = peers.requests(argparse.Namespace(no_ends=False, **asked))
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0, 1]
    cores = (available[:1], available[-1:]) if options.pin else None
    found: dict[str, Any] = {
        "target": target,
        "busy": options.busy,
        "never_worse": {},
        "own_speed": {},
        "tokens_per_s": {},
        "repetitions": {},
    }
    for drafter in options.drafters:
        draft = DRAFTERS[drafter]
        model = [*draft_words(draft or "none", target), "--history=off", *options.draft]
        named = [[f"--name=user-{number}", *model] for number in range(1, options.clients + 1)]
        async with http_nodes(named, "--threads=1", *options.verify, target=target, cores=cores) as nodes:
            ports = [int(urlsplit(url).port or 0) for url in nodes.urls]
            ways: dict[str, Way] = {
                PLAIN: Ours(ports, drafter="none").write,
                drafter: Ours(ports, drafter=None).write,
            }
            for temperature in options.temperature:
                turns = Turns(ways, {}, at_once)
                asking, warming = (replace(one, temperature=temperature) for one in (request, warm_up))
                await turns.measure(asking, warming, options.repetitions)
                for key in at_once:
                    cell = f"{drafter}, {key} at once, T={temperature:g}"
                    found["repetitions"][cell] = {way: turns.rates[way][key] for way in ways}
                    plain, drafted = (statistics.median(turns.rates[way][key]) for way in ways)
                    plain_own, drafted_own = (statistics.median(turns.own_rates[way][key]) for way in ways)
                    found["tokens_per_s"][cell], found["never_worse"][cell] = [plain, drafted], drafted / plain
                    found["own_speed"][cell] = drafted_own / plain_own
    return found


def lines(found: dict[str, Any]) -> Iterator[str]:
    least = LEAST_BUSY if found["busy"] else LEAST
    for cell, ratio in found["never_worse"].items():
        plain, drafted = found["tokens_per_s"][cell]
        rates = f"{drafted:>7.1f} tokens/s, without drafts {plain:.1f}"
        own = f"a chat's own speed {found['own_speed'][cell]:.2f} times"
        yield f"  {cell:<36} {rates}: {ratio:.2f} (wanted: at least {least}); {own}"
