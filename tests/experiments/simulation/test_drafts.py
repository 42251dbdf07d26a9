"""Worlds with drafts of each kind: trees and n-grams are accepted as such, draft models waited for where it pays."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from draft_node.core.counts import total
from experiments.simulation.paper import TABLE_1, Nodes, serving
from experiments.simulation.settings import Settings
from experiments.simulation.world import World
from goodspeed.fair.round_time import Linear
from verify_node.scheduler import start as starting

KNOWN: dict[str, Any] = {"known_cost": True, "self_draft": False, "stops": 0.0}
"""The verify node knows the time of its rounds, drafts nothing itself, and texts do not end before their lengths."""


def played(settings: Settings, seed: int = 1) -> World:
    world = World(seed, settings)
    world.run(20_000.0)
    return world


# -- trees and n-grams -------------------------------------------------------------------------------------------------

SENDING = Settings(
    num_clients=4,
    num_sessions=3,
    alpha=(0.6, 0.3),
    round_cost=Linear(fixed_s=0.01),
    latency_s=(0.001,),
    draft_cost=(Linear(fixed_s=0.001),),
    sizes=lambda client, number: (8, 100),
    **KNOWN,
)
CALM = Settings(num_clients=3, num_sessions=3, num_users=2, validate=True)


def test_alternatives_are_verified_and_accepted() -> None:
    counts = played(SENDING).verify.core.counts
    assert counts.num_alternatives > counts.num_alternatives_accepted > 10
    assert 0.1 < counts.num_alternatives_accepted / counts.num_alternatives < 0.5


def by_source(settings: Settings) -> tuple[Counter[str], Counter[str]]:
    """Drafted and accepted tokens over all draft nodes of a world, by what drafted them."""
    statistics = total(*(draft.core.statistics for draft in played(settings).drafts))
    return Counter(statistics.drafted), Counter(statistics.accepted)


def test_tokens_of_an_index_that_is_right_are_accepted_as_such() -> None:
    drafted, accepted = by_source(replace(CALM, ngrams=("right",), has_model=(False,)))
    # Of a draft of n tokens, each right with probability 0.8, 4 (1 - 0.8^n) are accepted: of 15 tokens a quarter.
    assert 0.25 * drafted["ngram"] < accepted["ngram"] < drafted["ngram"]


def test_the_verify_node_drafts_from_a_sessions_own_text_what_was_recorded() -> None:
    settings = serving(TABLE_1[2], Nodes(), "n-gram, own text", temperature=0.0, num_texts=1, seed=1)
    drafted, accepted = by_source(settings)
    assert 0.2 * drafted["self"] < accepted["self"] < drafted["self"]  # an index of hashes is right by chance only


# -- draft models that draft unasked -----------------------------------------------------------------------------------

ROOM: dict[str, Any] = {"budget": 40, "max_round_tokens": 80, "num_pages": 1000, "context_len": 1000}
NEAR = Settings(
    num_clients=4,
    num_sessions=2,
    num_at_once=1,
    sizes=lambda client, number: (8, 200),
    alpha=(0.6,),
    latency_s=(0.0002,),
    round_cost=Linear(fixed_s=0.01, token_s=0.00001),
    **KNOWN,
    **ROOM,
)


def shares(step_s: float, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """The time that texts take with waits for drafts, and without any; step_s: of the draft models."""
    settings = replace(NEAR, draft_cost=(Linear(fixed_s=step_s),))
    waiting = played(settings, 3).now
    monkeypatch.setattr(starting, "SHARE", 0.0)
    monkeypatch.setattr(starting, "SHARE_ALONE", 0.0)
    return waiting, played(settings, 3).now


def test_a_near_and_quick_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, going = shares(0.0003, monkeypatch)
    assert waiting < 0.9 * going


@pytest.mark.thorough
@pytest.mark.parametrize("step_s", [0.002, 0.006])
def test_a_slow_one_holds_nobody_up(step_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, going = shares(step_s, monkeypatch)
    assert waiting < 1.02 * going
