"""Cost of choosing the drafted tokens of a round.

The time is that of `ByWorth.choose`, with a budget of as many tokens as there are sessions: for sessions with a draft
of 8 tokens each, as a chain, and as a tree of five tokens with three alternatives; and for those for which nobody
drafts, so that own drafts are looked up. Medians of the thread's own CPU time.

It takes about 5 s on two cores; about 2 s with --quick.
"""

from __future__ import annotations

import random
import sys
from typing import Literal

from experiments.harness import benchmark
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
        "drafts_us": 1e6 * benchmark.median_s(lambda: with_drafts.choose(chains, 0.0), repetitions, warm_up=3),
        "trees_us": 1e6 * benchmark.median_s(lambda: with_drafts.choose(trees, 0.0), repetitions, warm_up=3),
        "own_us": 1e6 * benchmark.median_s(lambda: own.choose(alone, 0.0), repetitions, warm_up=3),
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


def table(times: list[dict[str, object]]) -> str:
    lines = [f"one choice, in us: {DRAFTED} tokens for each session, as chains, and trees; own drafts"]
    for row in times:
        each = " ".join(f"{row[key]:>10,.0f}" for key in ("drafts_us", "trees_us", "own_us"))
        lines.append(f"{each}  {row['num_sessions']:,} sessions")
    return "\n".join(lines)


def main() -> int:
    options = benchmark.parser("selection", __doc__, "fewer repetitions").parse_args()
    times = [choosing(number, 10 if options.quick else 50) for number in NUM_SESSIONS]
    benchmark.say(options, table(times))
    benchmark.report(options, {"benchmark": "selection", "choices": times})
    return 0


if __name__ == "__main__":
    sys.exit(main())
