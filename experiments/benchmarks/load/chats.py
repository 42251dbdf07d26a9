"""Real chats of a real model: what each way of drafting brings beside no drafts, at the same nodes and in one run."""

import argparse
import os
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any
from urllib.parse import urlsplit

from experiments.benchmarks import peers
from experiments.benchmarks.nodes.processes import http_nodes
from experiments.benchmarks.rivals.ours import PLAIN, Ours
from experiments.benchmarks.rivals.results import Turns, Way
from goodspeed.app.demo.options import draft_words
from goodspeed.embedded.models import PACKAGED
from goodspeed.errors import PromptError
from training.chats import load

DRAFTERS = {"ngram": None, "same_size": "smollm2", "smollm2-draft": "smollm2-draft"}
"""Drafters by name: a model at each user's draft node; None: n-grams of the text itself."""

LEAST, LEAST_BUSY = 0.98, 0.95
"""Wanted tokens per second with drafts / without, in every case; beside a busy process."""


def is_real(target: str) -> bool:
    return target in PACKAGED


MOST_LETTERS = 4_000
"""The most of a folder's question: question and answer must fit into 2,048 tokens."""


def questions(options: argparse.Namespace) -> dict[str, Sequence[str]]:
    """Returns what is asked, by the beginning of the cells' names: the questions of `peers`, or some of each domain."""
    if options.prompts is None:
        return {"": peers.QUESTIONS}
    found = {}
    for domain, chats in load(options.prompts).items():
        fitting = [chat.turns[0] for chat in chats if len(chat.turns[0]) <= MOST_LETTERS]
        found[f"{domain}, "] = random.Random(domain).sample(fitting, min(options.texts, len(fitting)))
    if not any(found.values()):
        raise PromptError(f"{options.prompts}: every question has more than {MOST_LETTERS} letters; give shorter ones")
    return {domain: asked for domain, asked in found.items() if asked}


async def measure(options: argparse.Namespace, target: str) -> dict[str, Any]:
    """Asks some questions, so many at a time, without drafts and with those of a drafter.

    The verify node has a core, all draft nodes another one. Nobody has a history or a prefix cache. Returns medians of
    tokens per second by case, and with drafts / without: `never_worse` of all tokens until the last chat ends,
    `own_speed` of the geometric mean of the chats' own tokens per second, which the policy maximises.
    """
    at_once = {str(number): number for number in options.at_once}
    most = max(options.at_once)
    asked = {"target": target, "questions": max(options.texts, most), "at_once": at_once, "max_tokens": options.answer}
    asking = argparse.Namespace(no_ends=False, **asked)
    requests = {kind: peers.requests(asking, of_kind) for kind, of_kind in questions(options).items()}
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
        named = [[f"--name=user-{number}", *model] for number in range(1, most + 1)]
        async with http_nodes(named, "--threads=1", *options.verify, target=target, cores=cores) as nodes:
            ports = [int(urlsplit(url).port or 0) for url in nodes.urls]
            ways: dict[str, Way] = {PLAIN: Ours(ports, drafter="none").write, drafter: Ours(ports, drafter=None).write}
            for temperature, (kind, both) in product(options.temperature, requests.items()):
                turns = Turns(ways, {}, at_once)
                request, warm_up = (replace(one, temperature=temperature) for one in both)
                await turns.measure(request, warm_up, options.repetitions)
                for key in at_once:
                    cell = f"{drafter}, {kind}{key} at once, T={temperature:g}"
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
        yield f"  {cell:<44} {rates}: {ratio:.2f} (wanted: at least {least}); {own}"
