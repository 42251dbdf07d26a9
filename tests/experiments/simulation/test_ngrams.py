"""Worlds with n-gram indexes: texts are the target's whatever an index says, and older verify nodes notice nothing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from draft_node.core.counts import total
from experiments.simulation.checks import Findings, Silence, look_back
from experiments.simulation.network import Line
from experiments.simulation.ngrams import NgramKind
from experiments.simulation.settings import Settings
from experiments.simulation.world import World
from experiments.simulation.worlds import some_settings
from goodspeed.fair.policies import ClientState
from goodspeed.slo.objectives import SHORTEST_S
from goodspeed.wire.fields import Capability
from goodspeed.wire.messages import Draft, Offer, OpenSession, UpMessage

BOTH: tuple[Capability, ...] = ("odds", "offers")


class ByTurns:
    """Lengths in two rounds of five, so that sessions both wait for drafts and go on by themselves."""

    def __init__(self) -> None:
        self.number = 0

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        self.number += 1
        length = budget // max(1, len(clients)) if self.number % 5 < 2 else 0
        return [min(length, client.max_length) for client in clients]


CALM = Settings(num_clients=3, num_sessions=3, policy=ByTurns, capabilities=BOTH, num_users=2, validate=True)


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
    world, found = play(replace(CALM, ngrams=(kind,), has_model=(has_model,)))
    assert (found.what, found.num_sessions) == ([], 9)
    drafted, _ = world.by_source()
    if kind != "index":  # a hash seldom repeats itself
        assert world.num_sent(Offer) > 10
        assert drafted["ngram"] > 0
    assert has_model or not drafted["model"]


def test_tokens_of_an_index_that_is_right_are_accepted_as_such() -> None:
    drafted, accepted = play(replace(CALM, ngrams=("right",), has_model=(False,)))[0].by_source()
    assert 0.5 * drafted["ngram"] < accepted["ngram"] < drafted["ngram"]


@pytest.mark.parametrize("has_model", [True, False])
def test_an_older_verify_node_gets_no_word_that_it_does_not_know(has_model: bool) -> None:
    settings = replace(CALM, ngrams=("right", "hostile"), has_model=(has_model,), capabilities=())
    world, found = play(settings)
    assert found.what == []
    assert world.by_source()[1]["ngram"] > 0
    assert world.num_sent(Offer) == 0
    for message in world.sent:
        if isinstance(message, Draft):
            assert (message.odds, message.num_ngram) == (None, 0)
        if isinstance(message, OpenSession):
            assert message.drafter == "auto"


def test_one_that_takes_odds_gets_them_with_every_draft() -> None:
    world, found = play(replace(CALM, ngrams=("right", "off"), capabilities=("odds",)))
    drafts = [message for message in world.sent if isinstance(message, Draft) and message.tokens]
    assert found.what == []
    assert {draft.num_ngram > 0 for draft in drafts} == {True, False}
    assert all(draft.odds is not None for draft in drafts)
    assert world.num_sent(Offer) == 0


def test_bad_worlds_have_indexes_of_every_kind() -> None:
    worlds = [some_settings(seed) for seed in range(60)]
    assert {kind for settings in worlds for kind in settings.ngrams} == {"off", "index", "right", "hostile"}
    assert any(not all(settings.has_model) for settings in worlds)
    announced = [settings.capabilities for settings in worlds]
    assert {
        tuple(one for one in known if one not in ("slo", "prefix_cache")) for known in announced if known is not None
    } == {
        (),
        ("odds",),
        BOTH,
        (*BOTH, "model_offers"),
        (*BOTH, "model_offers", "trees"),
    }
    assert None in announced
    assert {shape for settings in worlds for shape in settings.trees} == {"own", "hostile"}


def test_bad_worlds_ask_for_service_levels_that_can_be_kept_and_that_cannot() -> None:
    worlds = [some_settings(seed) for seed in range(60)]
    assert {settings.policy for settings in worlds} >= {"slo", "gradient"}
    assert {settings.capabilities is None or "slo" in settings.capabilities for settings in worlds} == {True, False}
    asked = {slo.tpot_s for settings in worlds for slo in settings.slos if slo is not None}
    assert asked >= {None, SHORTEST_S, 60.0}
