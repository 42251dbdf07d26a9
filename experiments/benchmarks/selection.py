"""What it costs to choose the drafted tokens of a round.

The time is that of `ByWorth.choose`, with a budget of as many tokens as there are sessions: for sessions with a draft
of 8 tokens each, as a chain, and as a tree of five tokens with three alternatives; and for those for which nobody
drafts, so that own drafts are looked up. Medians of the thread's own CPU time.

It takes about 5 s on two cores; about 2 s with --quick.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Literal

from goodspeed.exact import trees
from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import Linear
from goodspeed.wire.messages import Draft, OpenSession, Sampling
from verify_node.scheduler.drafted import SelfDrafts
from verify_node.scheduler.round import RoundLimits
from verify_node.scheduler.select import ByWorth
from verify_node.session.client import Client
from verify_node.session.session import Session

FORWARD = Linear(fixed_s=0.0065, token_s=0.00032)  # about the tiny target's on one CPU thread
NUM_SESSIONS = (8, 100, 1_000)
DRAFTED = 8
TREE = trees.pack((-1, 0, 1, 2, 3, -1, 0, 1))


def choosing(num_sessions: int, repetitions: int) -> dict[str, object]:
    """Microseconds of one choice, with a draft for each session and with none."""
    limits = RoundLimits(num_sessions, 4 * num_sessions)
    chains, trees, alone = (_sessions(num_sessions, drafts) for drafts in ("chains", "trees", "none"))
    with_drafts = ByWorth(Refined(FORWARD), limits, _worth)
    own = ByWorth(Refined(FORWARD), limits, _worth, SelfDrafts())
    return {
        "num_sessions": num_sessions,
        "drafts_us": 1e6 * _median_s(lambda: with_drafts.choose(chains, 0.0), repetitions),
        "trees_us": 1e6 * _median_s(lambda: with_drafts.choose(trees, 0.0), repetitions),
        "own_us": 1e6 * _median_s(lambda: own.choose(alone, 0.0), repetitions),
    }


def _worth(client: Client) -> float:
    return client.weight / client.goodput.value


def _sessions(number: int, drafts: Literal["chains", "trees", "none"]) -> list[Session]:
    """Sessions with texts of 200 tokens, of up to 100 clients."""
    rng = random.Random(0)
    clients = [
        Client(f"client-{each}", AcceptanceEstimator(0.1, 0.7), GoodputEstimator(0.1, rng.uniform(1.0, 6.0)))
        for each in range(min(number, 100))
    ]
    sessions = []
    for each in range(number):
        prompt = tuple(rng.randrange(40) for _ in range(200))
        opened = OpenSession(each.to_bytes(16, "big"), 1, prompt, (), Sampling(temperature=0.0), 100)
        client = clients[each % len(clients)]
        session = Session(opened, b"peer", client, client.acceptance, list(prompt), each, len(prompt), 300)
        session.commit((1,))
        if drafts != "none":
            session.take_draft(_draft(session, rng, TREE if drafts == "trees" else None), 0.0)
        sessions.append(session)
    return sessions


def _draft(session: Session, rng: random.Random, parents: bytes | None) -> Draft:
    tokens = tuple(rng.sample(range(40), DRAFTED))
    codes = bytes(rng.randrange(20) for _ in range(DRAFTED))
    return Draft(session.session_id, 1, len(session.tokens), tokens, codes, "model", parents)


def _median_s(call: Callable[[], object], repetitions: int) -> float:
    """This thread's CPU seconds of a call; the first ones, which index texts, do not count."""
    for _ in range(3):
        call()
    durations = []
    for _ in range(repetitions):
        start = time.thread_time()
        call()
        durations.append(time.thread_time() - start)
    return statistics.median(durations)


def table(times: list[dict[str, object]]) -> str:
    lines = [f"one choice, in us: {DRAFTED} tokens for each session, as chains, and trees; own drafts"]
    for row in times:
        each = " ".join(f"{row[key]:>10,.0f}" for key in ("drafts_us", "trees_us", "own_us"))
        lines.append(f"{each}  {row['num_sessions']:,} sessions")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.selection", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    times = [choosing(number, 10 if options.quick else 50) for number in NUM_SESSIONS]
    print(table(times), file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps({"benchmark": "selection", "choices": times}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
