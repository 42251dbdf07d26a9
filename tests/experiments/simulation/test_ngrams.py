"""Worlds with n-gram indexes: texts are the target's whatever an index says."""

from collections import Counter
from dataclasses import replace

import pytest

from draft_node.core.counts import total
from experiments.simulation.checking.checks import Findings, Silence, look_back
from experiments.simulation.network import Line
from experiments.simulation.paper import TABLE_1, Nodes, serving
from experiments.simulation.settings import Settings
from experiments.simulation.texts.ngrams import NgramKind
from experiments.simulation.world import World
from goodspeed.wire.messages import Draft, UpMessage

CALM = Settings(num_clients=3, num_sessions=3, num_users=2, validate=True)


class Recorded(World):
    """A world that keeps every message to the verify node."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.sent: list[UpMessage] = []
        super().__init__(seed, settings)

    def send_up(self, line: Line, peer_id: bytes, message: UpMessage) -> None:
        self.sent.append(message)
        super().send_up(line, peer_id, message)

    def num_sent(self, kind: type) -> int:
        return sum(isinstance(message, kind) for message in self.sent)

    def by_source(self) -> tuple[Counter[str], Counter[str]]:
        """Drafted and accepted tokens over all draft nodes, by what drafted them."""
        statistics = total(*(draft.core.statistics for draft in self.drafts))
        return Counter(statistics.drafted), Counter(statistics.accepted)


def play(settings: Settings, seed: int = 1) -> tuple[Recorded, Findings]:
    world = Recorded(seed, settings)
    silence = Silence(world)
    world.run(20_000.0)
    return world, look_back(world, silence)


@pytest.mark.parametrize("has_model", [True, False])
@pytest.mark.parametrize("kind", ["index", "right", "hostile"])
def test_texts_are_the_targets_whatever_the_index_says(kind: NgramKind, has_model: bool) -> None:
    rounds = "barrier" if kind == "hostile" else "continuous"  # else none of its tokens would be worth verifying
    world, found = play(replace(CALM, ngrams=(kind,), has_model=(has_model,), rounds=rounds))
    assert (found.what, found.num_sessions) == ([], 9)
    drafted, _ = world.by_source()
    if kind != "index":  # a hash seldom repeats itself
        assert world.num_sent(Draft) > 10
        assert drafted["ngram"] > 0
    assert has_model or not drafted["model"]


def test_tokens_of_an_index_that_is_right_are_accepted_as_such() -> None:
    drafted, accepted = play(replace(CALM, ngrams=("right",), has_model=(False,)))[0].by_source()
    # Of a draft of n tokens, each right with probability 0.8, 4 (1 - 0.8^n) are accepted: of 15 tokens a quarter.
    assert 0.25 * drafted["ngram"] < accepted["ngram"] < drafted["ngram"]


def test_the_verify_node_drafts_from_a_sessions_own_text_what_was_recorded() -> None:
    settings = serving(TABLE_1[2], Nodes(), "n-gram, own text", temperature=0.0, num_texts=1, seed=1)
    drafted, accepted = play(settings)[0].by_source()
    assert 0.2 * drafted["self"] < accepted["self"] < drafted["self"]  # an index of hashes is right by chance only
