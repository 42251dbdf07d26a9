"""What the experiments are told, and what follows from their arm. A toy of the experiments says which arm it is."""

from typing import Any

import pytest

from tests.fakes import Desk
from tests.verify_node.scheduler.drafting import make_client, make_session
from verify_node.arms.by_situation import ArmsBySituation
from verify_node.arms.comparisons import Arm
from verify_node.arms.stretches import ArmRound
from verify_node.arms.switching import Switching
from verify_node.scheduler.commit import Moved
from verify_node.scheduler.round import Entry, Outcome
from verify_node.scheduler.select import Whole


class Scripted(ArmsBySituation):
    """Takes the arm that a test says, and notes what it is told."""

    def __init__(self, arm: Arm = Arm.MODEL) -> None:
        super().__init__(0.02)
        self.said = arm
        self.rounds: list[ArmRound] = []
        self.seen: list[tuple[float, float, int]] = []  # of each its tokens, seconds and sessions

    @property
    def arm(self) -> Arm:
        return self.said

    def observe(self, done: ArmRound) -> None:
        self.rounds.append(done)
        self.seen.append((done.worth_tokens, round(done.seconds, 6), done.num_sessions))


class Choosing(Whole):
    looks = True

    def looks_at_drafts(self, yes: bool) -> None:
        self.looks = yes


def moved(session: Any, num_tokens: int) -> Moved:
    entry = Entry(session.session_id, 0, (1,), 0, True, session.opened.sampling)
    tokens = tuple(range(num_tokens))
    return Moved(session, entry, Outcome(session.session_id, tokens, 0, 0.0), 3, tokens)


def tried(switching: Switching) -> tuple[Arm, ...]:
    """The arms that can be taken, in the order of effort."""
    report = switching.report
    assert report is not None
    return tuple(one.arm for one in report.arms)


def test_a_round_is_its_weighted_tokens_and_the_time_since_the_last():
    arms = Scripted()
    switching = Switching(Choosing(), arms)
    heavy, light = make_session(1, make_client("a", weight=2.0)), make_session(2)
    switching.begin(10.0)
    switching.finished([moved(heavy, 3), moved(light, 1)], [heavy, light], 10.5)
    switching.finished([moved(light, 1)], [heavy, light], 12.0)
    assert arms.seen == [(7.0, 0.5, 2), (1.0, 1.5, 2)]


def test_a_step_is_a_sessions_part_in_a_round_whatever_its_draft_brought():
    arms = Scripted()
    switching = Switching(Choosing(), arms)
    heavy, light = make_session(1, make_client("a", weight=2.0)), make_session(2)
    switching.finished([moved(heavy, 3), moved(light, 1)], [heavy, light], 0.5, reads_prompts=True)
    assert arms.rounds == [ArmRound(7.0, 3.0, 0.5, 2, reads_prompts=True)]


@pytest.mark.parametrize(
    ("arm", "looks", "permits"), [(Arm.NONE, False, False), (Arm.NGRAM, True, False), (Arm.MODEL, True, True)]
)
def test_what_each_arm_means(arm, looks, permits):
    choice = Choosing()
    switching = Switching(choice, Scripted(arm))
    switching.finished([], [make_session(1)], 1.0)
    assert (choice.looks, switching.permits, switching.arm) == (looks, permits, arm)


def test_where_nothing_is_tried_models_may_draft():
    switching = Switching(Choosing(), None)
    switching.finished([moved(make_session(1), 1)], [], 1.0)
    assert (switching.permits, switching.report, switching.arm) == (True, None, None)


@pytest.mark.parametrize(
    ("changes", "arms"),
    [
        ({}, (Arm.NONE, Arm.NGRAM, Arm.MODEL)),
        ({"drafter": "ngram"}, (Arm.NONE, Arm.NGRAM)),
        ({"drafter": "model"}, (Arm.NONE, Arm.MODEL)),
        ({"drafter": "none"}, (Arm.NONE,)),
        ({"verification": "ratio"}, (Arm.NONE, Arm.MODEL)),
    ],
)
def test_arms_that_differ_for_nobody_are_not_tried(changes, arms):
    switching = Switching(Choosing(), ArmsBySituation())
    switching.finished([], [make_session(1, **changes)], 1.0)
    assert tried(switching) == arms


def test_arms_that_differ_for_somebody_are_tried():
    switching = Switching(Choosing(), ArmsBySituation())
    switching.finished([], [make_session(1, drafter="none"), make_session(2, drafter="ngram")], 1.0)
    assert tried(switching) == (Arm.NONE, Arm.NGRAM)


def test_a_node_that_is_left_alone_stays_as_it_is():
    """Nobody knows who comes next."""
    experiments = ArmsBySituation()
    switching = Switching(Choosing(), experiments)
    sessions = [make_session(number, drafter="ngram") for number in range(8)]
    switching.finished([], sessions, 1.0)
    switching.finished([], [], 2.0)
    assert (experiments.load, tried(switching)) == (8, (Arm.NONE, Arm.NGRAM))


def test_a_client_without_a_model_leaves_nothing_for_the_arm_of_models():
    switching = Switching(Choosing(), ArmsBySituation())
    client = make_client(has_model=False)
    switching.finished([], [make_session(1, client)], 1.0)
    assert Arm.MODEL not in tried(switching)


@pytest.mark.parametrize("num_rounds", [20, 200])
def test_users_without_drafts_do_not_turn_off_the_drafts_of_those_after_them(num_rounds):
    """Texts by turns, with n-gram drafts and without; drafts bring half as much again."""
    switching, now = Switching(Choosing(), ArmsBySituation()), 0.0
    with_drafts, without = make_session(1, drafter="ngram"), make_session(2, drafter="none")
    taken = []
    for number in range(60):
        session = (with_drafts, without)[number % 2]
        for left in reversed(range(num_rounds)):
            is_faster = session is with_drafts and switching.arm is Arm.NGRAM
            taken += [switching.arm] if session is with_drafts else []
            now += 0.02 if is_faster else 0.03
            switching.finished([moved(session, 1)], [session] if left else [], now)
    assert taken.count(Arm.NGRAM) / len(taken) > 0.94  # the others: trials, and each text's first round


# -- in a verify node --------------------------------------------------------------------------------------------------


def observed(desk: Desk) -> list[tuple[float, float, int]]:
    """Has a toy take the place of the experiments; returns what it will be told."""
    arms = desk.core.switching._arms = Scripted()
    return arms.seen


def test_time_in_which_nobody_asks_for_anything_does_not_count():
    desk = Desk()
    seen = observed(desk)
    desk.hello()
    desk.now = 100.0
    desk.open(max_tokens=1)
    desk.round(0.5)
    desk.now = 200.0
    desk.open(number=2, max_tokens=1)
    desk.round(0.5)
    assert seen == [(1.0, 0.5, 1), (1.0, 0.5, 1)]


def test_nor_does_it_after_all_were_closed_between_two_rounds():
    desk = Desk()
    seen = observed(desk)
    desk.hello()
    desk.open()
    desk.round(0.5)
    desk.core.register.drop(desk.session())
    desk.now = 100.0
    desk.open(number=2)
    desk.round(0.5)
    assert seen == [(1.0, 0.5, 1), (1.0, 0.5, 1)]


def test_waiting_for_a_draft_counts():
    desk = Desk()
    seen = observed(desk)
    desk.hello()
    desk.open()
    desk.round(0.5)
    desk.now += 2.0
    desk.open(number=2)  # one that comes in the meantime begins nothing anew
    desk.draft()
    desk.round(0.5)
    assert seen[1][1] == 2.5


@pytest.mark.parametrize(("arm", "permits"), [(Arm.NONE, False), (Arm.NGRAM, False), (Arm.MODEL, True)])
def test_only_in_the_arm_of_models_may_they_draft(arm, permits):
    desk = Desk()
    observed(desk)
    desk.core.switching._arms.said = arm
    desk.hello()
    desk.open()
    [verdict] = desk.round()
    assert bool(verdict.may_draft) is permits


def test_drafts_on_their_way_are_not_looked_at_in_the_arm_without():
    desk = Desk(self_draft=False)
    observed(desk)
    desk.hello()
    desk.open()
    desk.core.switching._arms.said = Arm.NONE
    desk.round()
    desk.session().may_draft = 4  # as before this arm began
    desk.draft()
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.may_draft) == (0, 0)


def test_what_an_index_drafts_is_verified_where_models_may_not_draft():
    desk = Desk(self_draft=False)
    observed(desk)
    desk.hello()
    desk.open()
    desk.core.switching._arms.said = Arm.NGRAM
    desk.round()
    desk.session().may_draft = 4
    desk.draft(source="ngram")
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.may_draft) == (4, 0)
