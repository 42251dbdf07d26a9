"""Measurements decide whether draft models on this machine may draft, in toy worlds that say what a round brings."""

import math
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verify_node.scheduler import draft_model_switch
from verify_node.scheduler.draft_model_switch import COUNTED_ROUNDS, MANY, SETTLING_ROUNDS, DraftModelSwitch, Stretch

LEAST_TOKEN_S = draft_model_switch.LEAST_TOKEN_S
STRETCH = SETTLING_ROUNDS + COUNTED_ROUNDS
ALONE_S = 0.01


def plain_s(num_sessions: int) -> float:
    """A round's seconds where reading the weights is all that it takes."""
    return (MANY - 0.1) * LEAST_TOKEN_S


def moved_by(num_tokens: int, session: Any, num_accepted: int = 0) -> Any:
    """A session to which a round gave so many tokens. num_accepted: of these, a draft model's."""
    entry = SimpleNamespace(source="model" if num_accepted else None)
    return SimpleNamespace(taken=range(num_tokens), session=session, entry=entry, num_accepted=num_accepted)


class World:
    """Rounds that take longer where draft models draft, and bring more."""

    def __init__(self, gain: float, num_sessions: int, *, are_near=True, noise=0.0, accepted=0.5, each=100) -> None:
        """gain: of the tokens per second with draft models over those without. noise: of a round's tokens.

        accepted: share of the tokens that draft models proposed, while they may. each: tokens of a round.
        """
        self.drafts = DraftModelSwitch(are_near, plain_s, are_near=are_near)
        self.gain = gain
        self.work_s = 0.0  # of a round with draft models elsewhere, beside 10 ms of its forward pass
        self.permitted: list[bool] = []
        self._noise, self._accepted, self._each = noise, accepted, each
        self._random = np.random.default_rng(1)
        self._now = 0.0
        client = SimpleNamespace(weight=1.0, answer_s=0.0)
        known: Any = {"uses_model": True, "allows_own": True, "draws_at_random": False, "client": client}
        self.sessions: Any = [SimpleNamespace(**known) for _ in range(num_sessions)]

    def run(self, num_rounds: int, num_sessions: int | None = None) -> bool:
        """Returns what is permitted in the end."""
        for _ in range(num_rounds):
            self.permitted.append(self.drafts.permits)
            gain = self.gain if self.drafts.permits else 1.0
            num_tokens = self._each * gain * (1 + self._noise * self._random.normal())
            self._now += 0.01
            if not self.drafts.are_near:
                work_s = self.work_s if self.drafts.permits else self.work_s / 2
                self.drafts.weigh_work(work_s, 0.01, len(self.sessions[:num_sessions]))
            num_accepted = int(num_tokens * self._accepted) if self.drafts.permits else 0
            moved = [moved_by(int(num_tokens), self.sessions[0], num_accepted)]
            sessions = self.sessions[:num_sessions]
            self.drafts.finished(moved, sessions, self._now, ALONE_S, len(sessions))
        return self.drafts.permits

    @property
    def share(self) -> float:
        """Returns the part of the rounds in which draft models might draft."""
        return sum(self.permitted) / len(self.permitted)

    def settle(self, num_rounds: int = 100 * STRETCH) -> float:
        """Runs twice as many rounds; returns the share of the second half."""
        self.run(num_rounds)
        self.permitted.clear()
        self.run(num_rounds)
        return self.share


@pytest.mark.parametrize(("num_sessions", "permits"), [(1, True), (MANY - 1, True), (MANY, False), (3 * MANY, False)])
def test_at_first_models_draft_where_tokens_take_long(num_sessions: int, permits: bool) -> None:
    assert World(1.0, num_sessions).run(1) is permits
    heavy = World(1.0, num_sessions)
    heavy.drafts.plain_s = lambda num_sessions: LEAST_TOKEN_S * num_sessions
    assert heavy.run(1)


@pytest.mark.parametrize("num_sessions", [1, MANY])
@pytest.mark.parametrize("gain", [0.8, 1.25])
def test_the_better_way_is_found_whichever_it_began_with(num_sessions: int, gain: float) -> None:
    share = World(gain, num_sessions, noise=0.2).settle()
    assert (share if gain < 1.0 else 1.0 - share) <= 0.05


def test_a_client_with_many_sessions_counts_once() -> None:
    world = World(1.0, MANY)
    few, many = (SimpleNamespace(client=SimpleNamespace(weight=1.0, answer_s=0.0)) for _ in range(2))
    found = []
    for num_sessions in (1, 64):
        world.drafts._stretch = Stretch()
        for _ in range(STRETCH - 1):
            moved = [moved_by(9, few), *[moved_by(1, many)] * num_sessions]
            world._now += 0.01
            world.drafts.finished(moved, world.sessions, world._now, ALONE_S, len(world.sessions))
        found.append(world.drafts._stretch.pace or 0.0)
    assert found[0] == pytest.approx(found[1])
    assert found[0] > 0.0


def test_models_that_bring_nothing_rest_and_are_tried_for_a_tenth_of_the_time() -> None:
    assert 0.0 < World(1.0, 1, noise=0.1).settle(60 * STRETCH) <= draft_model_switch.MOST_DRAFTING + 0.02


@pytest.mark.parametrize("num_sessions", [1, 2 * MANY])
def test_models_of_which_hardly_a_token_is_accepted_rest_before_they_are_compared(num_sessions: int) -> None:
    """Their tokens bound what drafts bring, whatever a noisy machine seems to say."""
    world = World(1.3, num_sessions, noise=0.3, accepted=0.01)
    world.drafts.drafts_first = True
    world.run(STRETCH)
    known = world.drafts._by_load[num_sessions, False]
    assert (known.num, known.permits) == (0.0, False)
    assert world.settle() <= draft_model_switch.LEAST_SHARE + 0.01


def test_stretches_of_one_mode_are_not_compared_when_the_bound_is_reached() -> None:
    """Each comparison is of both modes, of which one brings 1.3 times as much."""
    world = World(1.3, 1)
    world.run(10 * STRETCH)
    world._accepted = 0.0
    world.run(300 * STRETCH)
    known = world.drafts._by_load[1, False]
    assert not known.permits
    assert known.mean == pytest.approx(math.log(1.3))


def test_what_bounds_a_load_stays_when_sessions_come_and_go_and_does_not_depend_on_the_weights_scale() -> None:
    drafts = World(1.0, 1).drafts
    drafts._turn_to(1, 0.0).num_drafted = 0.0
    drafts._turn_to(MANY, 0.0)
    assert not drafts._turn_to(1, 0.0).permits
    worlds = [World(1.0, 1, accepted=0.0, each=1) for _ in range(2)]
    worlds[1].sessions[0].client.weight = 0.01
    found = [(world.run(20 * STRETCH), world.drafts._by_load[1, False].most) for world in worlds]
    assert found[0] == pytest.approx(found[1])
    assert not found[0][0]


@pytest.mark.parametrize(("num_sessions", "gain"), [(1, 0.9), (MANY, 1.3)])
def test_a_chat_is_long_enough_to_see_what_drafts_bring(num_sessions: int, gain: float) -> None:
    world = World(gain, num_sessions)
    world.run(100)
    assert world.drafts._by_load[num_sessions, False].permits == (gain > 1.0)


def test_trials_that_come_to_no_end_take_no_more_time_than_they_are_owed() -> None:
    """Here the number of sessions changes before a comparison is over."""
    world = World(3.0, 8)
    for num_sessions in [1, 2, 4, 8] * 100:
        world.run(30, num_sessions)
    assert 1.0 - world.share <= 0.1


def test_what_trials_of_drafting_took_delays_none_of_resting() -> None:
    world = World(0.8, 8)
    while not world.run(1):  # at first they rest
        pass
    assert not world.run(STRETCH)
    assert world.run(1, 1)  # there they are expected to pay
    world.permitted.clear()
    world.run(2 * STRETCH, 1)
    assert world.share < 1.0


def test_a_trial_ends_as_soon_as_its_tokens_show_that_nothing_pays() -> None:
    world = World(1.0, 1, accepted=0.0)
    world.settle(400 * STRETCH)
    trials = [len(list(rounds)) for permits, rounds in groupby(world.permitted) if permits]
    assert len(trials) > 1
    assert set(trials) == {SETTLING_ROUNDS + COUNTED_ROUNDS // 2}
    world._accepted = 0.5
    world.gain = 1.3
    assert world.settle(400 * STRETCH) > 0.9


@pytest.mark.parametrize("has_model", [True, False], ids=["elsewhere", "without a model"])
def test_models_elsewhere_always_may_and_sessions_without_models_try_nothing(has_model: bool) -> None:
    world = World(0.5, 2 * MANY if has_model else 1, are_near=not has_model)
    world.work_s = 0.0005
    world.sessions[0].uses_model = has_model
    world.run(40 * STRETCH)
    assert world.share == 1.0


@pytest.mark.parametrize("gain", [0.8, 1.25])
def test_models_elsewhere_are_compared_while_the_nodes_own_work_takes_much_of_the_time(gain: float) -> None:
    world = World(gain, 64, are_near=False)
    world.work_s = 0.002
    assert world.run(1)  # they are expected to pay
    share = world.settle()
    assert (share if gain < 1.0 else 1.0 - share) <= 0.05
    world.work_s = 0.0005  # the others have gone
    assert world.run(1)


def test_rounds_that_verify_drafts_on_their_way_do_not_count() -> None:
    """Drafts of far nodes arrive after the stretch in which they were made, by their clients' answer times."""
    world = World(1.0, 64, are_near=False)
    world.work_s = 0.002
    world.sessions[0].client.answer_s = 0.1
    world.run(10 + COUNTED_ROUNDS)
    assert world.drafts._stretch.num_counted == COUNTED_ROUNDS - 1
    world.run(1)
    assert world.drafts._stretch.num_rounds == 0


@pytest.mark.parametrize(
    ("gain", "tried", "other", "expected"),
    [(0.8, 1, 2, False), (0.8, 2, 1, True), (1.3, 2 * MANY, MANY, True), (1.3, MANY, 2 * MANY, False)],
)
def test_no_gain_is_expected_beside_more_sessions_and_a_gain_beside_fewer(gain, tried, other, expected) -> None:
    """Alone, models may draft at first, whatever was found beside others."""
    world, is_found = World(gain, max(tried, other)), gain > 1.0
    assert world.run(100 * STRETCH, tried) is is_found
    assert world.run(1, other) is expected
    if not is_found:
        assert not world.run(1, max(tried, other)), "what was found is kept"


def test_a_stretch_goes_on_when_the_number_of_sessions_changes() -> None:
    world = World(0.8, 2)
    for _ in range(8):  # chats end before a stretch is over
        for number in (2, 1):
            world.run(STRETCH // 2, number)
    assert sum(one.num for one in world.drafts._by_load.values())


@pytest.mark.parametrize("num_random", [1, 2])
def test_texts_of_both_kinds_side_by_side_are_compared_all_the_same(num_random: int) -> None:
    """Texts end and begin, so the share of the random ones wavers."""
    world = World(0.8, 3)
    for number in range(400):
        for place, session in enumerate(world.sessions):
            session.draws_at_random = place < num_random + number % 2
        world.run(STRETCH // 2)
    assert sum(one.num for one in world.drafts._by_load.values()) > 4
    assert world.share < 0.2


def test_texts_of_both_kinds_one_after_the_other_are_both_compared() -> None:
    world = World(1.3, 1)
    for number in range(200):
        world.sessions[0].draws_at_random = bool(number % 2)
        world.gain = 0.8 if number % 2 else 1.3
        world.run(3 * STRETCH)
    known = world.drafts._by_load
    assert known[1, False].permits
    assert not known[1, True].permits


def test_sessions_without_a_model_do_not_decide_how_texts_are_drawn() -> None:
    world = World(0.8, 3)
    for session in world.sessions[1:]:
        session.uses_model, session.draws_at_random = False, True
    world.run(100 * STRETCH)
    assert world.drafts._by_load[2, False].num > 3


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
    session: Any = SimpleNamespace(uses_model=True, draws_at_random=False, client=SimpleNamespace(weight=1.0))
    for drafts_first in (False, True):
        drafts = DraftModelSwitch(True, lambda num_sessions: 0.0, drafts_first)
        drafts.finished([], [session] * MANY, 0.1, ALONE_S, MANY)
        assert drafts.permits == drafts_first


@pytest.mark.parametrize("compares", [True, False], ids=["beside those of draft nodes", "alone"])
@pytest.mark.parametrize("gain", [0.8, 1.25])
def test_the_verify_nodes_own_model_is_compared_wherever_draft_nodes_are(compares: bool, gain: float) -> None:
    world = World(gain, 1)
    world.drafts.compares, world.drafts.has_own = compares, True
    world.sessions[0].uses_model = compares
    world.run(200 * STRETCH)
    assert world.drafts.own_may_draft is (gain > 1.0)
    assert world.drafts.nodes_may_draft is (gain > 1.0 or not compares)


def test_nothing_is_compared_while_the_verify_nodes_own_model_may_not_draft() -> None:
    world = World(0.8, 1)
    world.drafts.compares, world.drafts.has_own = False, True
    for now in range(10 * STRETCH):
        world.drafts.finished([], world.sessions, float(now), ALONE_S, len(world.sessions), own_rests=True)
    assert not world.drafts._by_load
    world.drafts.finished([], world.sessions, 10.0 * STRETCH, ALONE_S, len(world.sessions))
    assert world.drafts._stretch.seconds == pytest.approx(1.0), "the time before does not count"
