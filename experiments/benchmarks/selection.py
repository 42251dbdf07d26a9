"""How much of the budget rounds use when drafts collide, with and without selection, and what the choice costs.

The share of C is that of rounds, in simulated worlds, for which more drafted tokens had arrived than fit: the tokens
verified over C. Beside it stands how many of all rounds these are. With `--selection none` drafts that do not fit wait
for the next round, whole; with `odds` they are cut, and 3 C are handed out. A token costs next to no time in these
worlds (0.01 % of a round), so nothing is cut for not being worth it.

The time is that of `ByOdds.choose`, with a budget of as many tokens as there are sessions: for sessions with an offer
of 8 tokens each, as a chain, and as a tree of five tokens with three alternatives; and for those for which nobody
offers, so that own drafts are looked up. Medians of the thread's own CPU time.

It takes about 15 s on two cores; about 4 s with --quick.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from experiments.simulation.rounds import Finished
from experiments.simulation.settings import Settings
from experiments.simulation.world import World
from goodspeed.exact import trees
from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.fair.latency import Linear, Refined
from goodspeed.wire.messages import Offer, OpenSession, Sampling
from verify_node.packing.drafted import Drafted
from verify_node.packing.round import RoundLimits
from verify_node.rounds.choice import ByOdds, Choice
from verify_node.rounds.self_drafts import SelfDrafts
from verify_node.session.client import Client
from verify_node.session.session import Session

FORWARD = Linear(fixed_s=0.0065, token_s=0.00032)  # about the tiny target's on one CPU thread
CROWD = Settings(
    num_sessions=10_000,
    num_at_once=1,
    sizes=lambda client, session: (10, 80),
    stops=0.0,
    max_round_tokens=200,
    num_pages=4_000,
    round_cost=Linear(fixed_s=0.01, token_s=0.000001),
    explore=0.0,
    self_draft=False,
    alpha=(0.9, 0.8, 0.7, 0.6),
)
WORLDS = {
    "8 clients, C = 8": replace(CROWD, num_clients=8, budget=8),
    "8 clients, C = 24": replace(CROWD, num_clients=8, budget=24),
    "16 clients, C = 24": replace(CROWD, num_clients=16, budget=24),
    "16 clients, C = 24, random lengths": replace(CROWD, num_clients=16, budget=24, policy="random"),
}
WANTED = 0.95
NUM_SESSIONS = (8, 100, 1_000)
OFFERED = 8
TREE = trees.pack((-1, 0, 1, 2, 3, -1, 0, 1))


@dataclass
class Noting:
    """A choice that notes how many drafted tokens were there for the newest round; all else is the core's own."""

    own: Choice
    num_there: int = 0

    def choose(self, ready: Sequence[Session], now: float, most: int | None = None) -> dict[bytes, Drafted]:
        self.num_there = sum(len(session.draft.tokens) for session in ready if session.draft is not None)
        return self.own.choose(ready, now, most)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def share_used(settings: Settings, num_rounds: int, seed: int = 1) -> tuple[float, float]:
    """The share of C in rounds with more drafted tokens than C, and how many of all rounds these are."""
    verified: list[int] = []

    def on_round(done: Finished) -> None:
        if done.round.number > num_rounds // 10 and noting.num_there > settings.budget:
            verified.append(done.round.num_drafted)

    world = World(seed, settings, on_round)
    core = world.verify.core
    if core is None:
        raise RuntimeError("a world begins with a verify node")
    noting = Noting(core.choice)
    core.choice = noting
    world.run_rounds(num_rounds)
    return statistics.mean(verified) / settings.budget, len(verified) / (0.9 * num_rounds)


def shares(num_rounds: int) -> list[dict[str, object]]:
    """Draft nodes draft nothing ahead and unasked: only assigned drafts collide."""
    rows: list[dict[str, object]] = []
    for name, settings in WORLDS.items():
        row: dict[str, object] = {"world": name}
        for each in ("none", "odds"):
            row[each], row[f"{each}_collided"] = share_used(
                replace(settings, selection=each, draft_ahead=False), num_rounds
            )
        rows.append(row | {"is_met": float(str(row["odds"])) >= WANTED})
    return rows


def choosing(num_sessions: int, repetitions: int) -> dict[str, object]:
    """Microseconds of one choice, with an offer for each session and with none."""
    limits = RoundLimits(num_sessions, 4 * num_sessions)
    chains, trees, alone = (_sessions(num_sessions, offers) for offers in ("chains", "trees", "none"))
    with_offers = ByOdds(Refined(FORWARD), limits, _worth)
    own = ByOdds(Refined(FORWARD), limits, _worth, SelfDrafts())
    return {
        "num_sessions": num_sessions,
        "offers_us": 1e6 * _median_s(lambda: with_offers.choose(chains, 0.0), repetitions),
        "trees_us": 1e6 * _median_s(lambda: with_offers.choose(trees, 0.0), repetitions),
        "own_us": 1e6 * _median_s(lambda: own.choose(alone, 0.0), repetitions),
    }


def _worth(client: Client) -> float:
    return client.weight / client.goodput.value


def _sessions(number: int, offers: Literal["chains", "trees", "none"]) -> list[Session]:
    """Sessions at length 0 with texts of 200 tokens, of up to 100 clients."""
    rng = random.Random(0)
    clients = [
        Client(f"client-{each}", AcceptanceEstimator(0.1, 0.7), GoodputEstimator(0.1, rng.uniform(1.0, 6.0)))
        for each in range(min(number, 100))
    ]
    for client in clients:
        client.understand(("offers", "model_offers", "odds", "trees"))
    sessions = []
    for each in range(number):
        prompt = tuple(rng.randrange(40) for _ in range(200))
        opened = OpenSession(each.to_bytes(16, "big"), 1, prompt, (), Sampling(temperature=0.0), 100)
        client = clients[each % len(clients)]
        session = Session(opened, b"peer", client, client.acceptance, list(prompt), each, len(prompt), 300)
        session.commit((1,))
        session.assign(0, 0, 1)
        if offers != "none":
            session.take_offer(_offer(session, rng, TREE if offers == "trees" else None), 0.0)
        sessions.append(session)
    return sessions


def _offer(session: Session, rng: random.Random, parents: bytes | None) -> Offer:
    """Makes an offer as a draft model would: only models offer trees."""
    tokens = tuple(rng.sample(range(40), OFFERED))
    codes = bytes(rng.randrange(20) for _ in range(OFFERED))
    return Offer(session.session_id, 1, len(session.tokens), tokens, codes, "model", parents)


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


def table(used: list[dict[str, object]], times: list[dict[str, object]]) -> str:
    lines = [
        f"share of C used where more is drafted than fits (wanted with odds: at least {WANTED:.0%}); of all rounds"
    ]
    for row in used:
        each = "; ".join(f"{row[name]:.1%} {name}, in {row[f'{name}_collided']:.0%}" for name in ("none", "odds"))
        lines.append(f"    {row['world']}: {each}")
    lines.append(
        f"one choice, in us: {OFFERED} tokens for each session, as chains; as trees; own drafts, without offers"
    )
    for row in times:
        each = " ".join(f"{row[key]:>10,.0f}" for key in ("offers_us", "trees_us", "own_us"))
        lines.append(f"{each}  {row['num_sessions']:,} sessions")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.selection", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    used = shares(400 if options.quick else 2_000)
    times = [choosing(number, 10 if options.quick else 50) for number in NUM_SESSIONS]
    print(table(used, times), file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps({"benchmark": "selection", "wanted": WANTED, "shares": used, "choices": times}))
    return 0 if all(row["is_met"] for row in used) else 1


if __name__ == "__main__":
    sys.exit(main())
