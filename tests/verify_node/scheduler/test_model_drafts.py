"""Measurements decide whether draft models on this machine may draft, in toy worlds that say what a round brings."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verify_node.scheduler.model_drafts import (
    COUNTED_ROUNDS,
    LEAST_TOKEN_S,
    MANY,
    MOST_DRAFTING,
    SETTLING_ROUNDS,
    ModelDrafts,
    Stretch,
    compare,
)

STRETCH = SETTLING_ROUNDS + COUNTED_ROUNDS
ALONE_S = 0.01


def plain_s(num_sessions: int) -> float:
    """A round's seconds where reading the weights is all that it takes."""
    return (MANY - 0.1) * LEAST_TOKEN_S


class World:
    """Rounds that take longer where draft models draft, and bring more."""

    def __init__(self, gain: float, num_sessions: int, *, is_shared: bool = True, noise: float = 0.0) -> None:
        """gain: of the tokens per second with draft models over those without. noise: of a round's tokens."""
        self.drafts = ModelDrafts(is_shared, plain_s)
        self.gain = gain
        self.permitted: list[bool] = []
        self._noise = noise
        self._random = np.random.default_rng(1)
        self._now = 0.0
        client = SimpleNamespace(weight=1.0)
        self.sessions: Any = [SimpleNamespace(uses_model=True, client=client) for _ in range(num_sessions)]

    def run(self, num_rounds: int, num_sessions: int | None = None) -> bool:
        """Returns what is permitted in the end."""
        for _ in range(num_rounds):
            self.permitted.append(self.drafts.permits)
            num_tokens = 100 * (self.gain if self.drafts.permits else 1.0) * (1 + self._noise * self._random.normal())
            self._now += 0.01
            moved: Any = [SimpleNamespace(taken=range(int(num_tokens)), session=self.sessions[0])]
            self.drafts.finished(moved, self.sessions[:num_sessions], self._now, ALONE_S)
        return self.drafts.permits

    @property
    def share(self) -> float:
        """Returns the part of the rounds in which draft models might draft."""
        return sum(self.permitted) / len(self.permitted)


@pytest.mark.parametrize(("num_sessions", "permits"), [(1, True), (MANY - 1, True), (MANY, False), (3 * MANY, False)])
def test_at_first_models_draft_where_tokens_take_long(num_sessions: int, permits: bool) -> None:
    assert World(1.0, num_sessions).run(1) is permits


def test_many_models_draft_at_first_for_a_target_with_weight() -> None:
    world = World(1.0, 4 * MANY)
    world.drafts.plain_s = lambda num_sessions: LEAST_TOKEN_S * num_sessions
    assert world.run(1)


@pytest.mark.parametrize("num_sessions", [1, MANY])
@pytest.mark.parametrize("gain", [0.8, 1.25])
def test_the_better_way_is_found_whichever_it_began_with(num_sessions: int, gain: float) -> None:
    world = World(gain, num_sessions, noise=0.2)
    world.run(100 * STRETCH)
    world.permitted.clear()
    world.run(100 * STRETCH)
    assert (world.share if gain < 1.0 else 1.0 - world.share) <= 0.05


def test_models_that_bring_nothing_rest_and_are_tried_for_a_tenth_of_the_time() -> None:
    world = World(1.0, 1, noise=0.1)
    world.run(60 * STRETCH)
    world.permitted.clear()
    world.run(60 * STRETCH)
    assert 0.0 < world.share <= MOST_DRAFTING + 0.02


@pytest.mark.parametrize(("num_sessions", "gain"), [(1, 0.9), (MANY, 1.3)])
def test_a_chat_is_long_enough_to_see_what_drafts_bring(num_sessions: int, gain: float) -> None:
    world = World(gain, num_sessions)
    world.run(100)
    assert world.drafts._by_load[num_sessions].permits == (gain > 1.0)


def test_elsewhere_models_always_may_and_nothing_is_tried() -> None:
    world = World(0.5, 2 * MANY, is_shared=False)
    world.run(40 * STRETCH)
    assert world.share == 1.0


def test_sessions_without_models_try_nothing() -> None:
    world = World(0.5, 1)
    world.sessions[0].uses_model = False
    world.run(40 * STRETCH)
    assert world.share == 1.0


def test_models_that_do_not_pay_are_expected_not_to_pay_beside_more_sessions() -> None:
    world = World(0.8, 2)
    assert not world.run(100 * STRETCH, 1)
    assert not world.run(1, 2)
    world = World(0.8, 2)
    assert not world.run(100 * STRETCH, 2)
    assert world.run(1, 1)  # alone they may
    assert not world.run(1, 2)  # what was found is kept


def test_models_that_pay_are_expected_to_pay_beside_fewer_sessions() -> None:
    world = World(1.3, 2 * MANY)
    assert world.run(100 * STRETCH, 2 * MANY)
    assert world.run(1, MANY)
    world = World(1.3, 2 * MANY)
    assert world.run(100 * STRETCH, MANY)
    assert not world.run(1, 2 * MANY)


def test_a_stretch_goes_on_when_the_number_of_sessions_changes() -> None:
    world = World(0.8, 2)
    for _ in range(8):  # chats end before a stretch is over
        for number in (2, 1):
            world.run(STRETCH // 2, number)
    assert sum(one.num for one in world.drafts._by_load.values())


def test_a_session_that_makes_them_many_counts_at_once() -> None:
    world = World(1.0, MANY)
    assert all(world.run(1, number) == (number < MANY) for number in range(1, MANY + 1))


def test_a_number_of_sessions_that_wavers_leaves_no_load() -> None:
    world = World(1.0, MANY)
    for _ in range(3):
        assert not world.run(1, MANY)
        assert not world.run(1, MANY - 1)
    assert world.run(1, 1)


def test_rounds_that_settle_do_not_count() -> None:
    stretch = Stretch()
    for number in range(STRETCH):
        assert not stretch.is_over
        stretch.observe(1000.0 if number < SETTLING_ROUNDS else 2.0, 0.5)
    assert stretch.is_over
    assert stretch.pace == 4.0
    assert Stretch().pace is None


def test_models_beside_a_gpu_draft_at_any_load_until_compared() -> None:
    session: Any = SimpleNamespace(uses_model=True, client=SimpleNamespace(weight=1.0))
    for drafts_first in (False, True):
        drafts = ModelDrafts(True, lambda num_sessions: 0.0, drafts_first)
        drafts.finished([], [session] * MANY, 0.1, ALONE_S)
        assert drafts.permits == drafts_first


def test_time_in_which_nobody_asked_does_not_count() -> None:
    drafts, session = ModelDrafts(True, plain_s), SimpleNamespace(uses_model=True)
    sessions: Any = [session]
    drafts.begin(1000.0)
    drafts.finished([], sessions, 1000.5, ALONE_S)
    assert drafts._stretch.seconds == 0.5


def test_a_trial_without_sessions_does_not_stop_the_other_comparison() -> None:
    nodes, own = ModelDrafts(True, plain_s), ModelDrafts(True, plain_s, uses=lambda session: True)
    session: Any = SimpleNamespace(uses_model=True, client=SimpleNamespace(weight=1.0))
    number = 0
    while not nodes.is_trying:
        number += 1
        moved: Any = [SimpleNamespace(taken=range(10), session=session)]
        compare(nodes, own, moved, [session], 0.01 * number, ALONE_S)
    owed_s, session.uses_model = own._owed_s, False  # the last session with a model is gone
    compare(nodes, own, [], [session], 0.01 * (number + 1), ALONE_S)
    assert own._owed_s > owed_s


def test_nothing_is_compared_while_the_verify_nodes_own_model_may_not_draft() -> None:
    nodes, own = ModelDrafts(True, plain_s), ModelDrafts(True, plain_s, uses=lambda session: True)
    session: Any = SimpleNamespace(uses_model=True, client=SimpleNamespace(weight=1.0))
    moved: Any = [SimpleNamespace(taken=range(10), session=session)]
    for number in range(100 * STRETCH):
        compare(nodes, own, moved, [session], 0.01 * number, ALONE_S, own_rests=True)
    assert not own._by_load
    assert nodes._by_load[1].num > 0
    compare(nodes, own, moved, [session], 0.01 * (number + 1), ALONE_S)
    assert own._stretch.seconds == pytest.approx(0.01)  # the time before does not count


def test_two_trials_that_meet_after_one_stood_still_do_not_stop_both_comparisons() -> None:
    nodes, own = ModelDrafts(True, plain_s), ModelDrafts(True, plain_s, uses=lambda session: True)
    session: Any = SimpleNamespace(uses_model=True, client=SimpleNamespace(weight=1.0))
    moved: Any = [SimpleNamespace(taken=range(10), session=session)]
    number = 0

    def run(num_rounds: int, *, own_rests: bool = False, until: ModelDrafts | None = None) -> None:
        nonlocal number
        for _ in range(num_rounds):
            number += 1
            compare(nodes, own, moved, [session], 0.01 * number, ALONE_S, own_rests=own_rests)
            if until is not None and until.is_trying:
                return

    run(1000 * STRETCH, until=own)
    run(1000 * STRETCH, own_rests=True, until=nodes)
    assert nodes.is_trying
    assert own.is_trying  # it stands still
    known = nodes._by_load[1].num, own._by_load[1].num
    run(100 * STRETCH)
    assert nodes._by_load[1].num > known[0]
    assert own._by_load[1].num > known[1]


@pytest.mark.parametrize("gain", [0.8, 1.25])
@pytest.mark.parametrize("own_gain", [0.8, 1.25])
def test_the_verify_nodes_own_model_is_judged_apart_from_the_models_of_draft_nodes(
    gain: float, own_gain: float
) -> None:
    nodes, own = ModelDrafts(True, plain_s), ModelDrafts(True, plain_s, uses=lambda session: session.client.weight > 0)
    session: Any = SimpleNamespace(uses_model=True, client=SimpleNamespace(weight=1.0))
    shares = [0, 0]
    for number in range(400 * STRETCH):
        rate = (gain if nodes.permits else 1.0) * (own_gain if own.permits else 1.0)
        moved: Any = [SimpleNamespace(taken=range(int(1000 * rate)), session=session)]
        compare(nodes, own, moved, [session], 0.01 * (number + 1), ALONE_S)
        assert not (nodes.is_trying and own.is_trying)
        if number >= 200 * STRETCH:
            shares = [shares[0] + nodes.permits, shares[1] + own.permits]
    for one, share in zip((gain, own_gain), shares, strict=True):
        permitted = share / (200 * STRETCH)
        assert (permitted if one < 1.0 else 1.0 - permitted) <= 0.05
