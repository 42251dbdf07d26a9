"""Worlds with n-gram indexes: what these are right about is accepted as theirs."""

from collections import Counter
from dataclasses import replace

from draft_node.core.counts import total
from experiments.simulation.paper import TABLE_1, Nodes, serving
from experiments.simulation.settings import Settings
from experiments.simulation.world import World

CALM = Settings(num_clients=3, num_sessions=3, num_users=2, validate=True)


def by_source(settings: Settings) -> tuple[Counter[str], Counter[str]]:
    """Drafted and accepted tokens over all draft nodes of a world, by what drafted them."""
    world = World(1, settings)
    world.run(20_000.0)
    statistics = total(*(draft.core.statistics for draft in world.drafts))
    return Counter(statistics.drafted), Counter(statistics.accepted)


def test_tokens_of_an_index_that_is_right_are_accepted_as_such() -> None:
    drafted, accepted = by_source(replace(CALM, ngrams=("right",), has_model=(False,)))
    # Of a draft of n tokens, each right with probability 0.8, 4 (1 - 0.8^n) are accepted: of 15 tokens a quarter.
    assert 0.25 * drafted["ngram"] < accepted["ngram"] < drafted["ngram"]


def test_the_verify_node_drafts_from_a_sessions_own_text_what_was_recorded() -> None:
    settings = serving(TABLE_1[2], Nodes(), "n-gram, own text", temperature=0.0, num_texts=1, seed=1)
    drafted, accepted = by_source(settings)
    assert 0.2 * drafted["self"] < accepted["self"] < drafted["self"]  # an index of hashes is right by chance only
