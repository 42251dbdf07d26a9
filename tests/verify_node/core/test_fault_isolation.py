"""A target model that fails: the round is made again, and only the session that it always fails on is given up."""

import pytest
from msgspec.structs import replace

from goodspeed.serving.loop import MAX_FAILURES, PAUSE_S
from goodspeed.wire.messages import Verdict
from tests.fakes import Desk, expected, session_id
from tests.verify_node.answers import fed, number_of, refusals
from verify_node.core.fault_isolation import MIN_IN_VAIN, PATIENCE_S, FaultIsolation, Stage
from verify_node.core.rounds import IMPOSSIBLE
from verify_node.scheduler.round import Outcome


class Failing(Desk):
    """Fails on a set of sessions; under `broken`, on every round."""

    def __init__(self, *names, **options):
        super().__init__(*names, **options)
        self.bad: set[int] = set()
        self.broken = False
        self.served: list[set[int]] = []  # the sessions of each round

    def open_all(self, *numbers, **changes):
        for number in numbers:
            self.open(number=number, **({"max_tokens": 20} | changes))

    def draft_all(self, *numbers, alpha=1.0):
        for number in numbers:
            if session_id(number) in self.core.sessions:
                self.draft(number=number, alpha=alpha)

    def finish(self, planned, duration_s=0.01, work_s=0.0):
        self.served.append(set(fed(planned)))
        if self.broken or self.bad & self.served[-1]:
            self.target.run(planned)  # it has fed the cache before it fails
            return [send.message for send in self.core.rounds.abort("OutOfMemoryError", self.now)]
        return super().finish(planned, duration_s, work_s)

    def fail(self):
        """Runs a round on which the target fails."""
        self.broken = True
        assert self.round() == []
        self.broken = False

    def run(self, *numbers, num_rounds=400):
        """Rounds with honest drafts for these; gives the refusals."""
        answers = []
        for _ in range(num_rounds):
            self.draft_all(*numbers, alpha=0.6)
            answers += self.round()
        return refusals(answers)

    def check_texts(self, *numbers):
        """They are whole, and the target's own."""
        assert [self.text(number) for number in numbers] == [expected(number) for number in numbers]

    @property
    def sizes(self):
        """The number of sessions in each round."""
        return [len(numbers) for numbers in self.served]


@pytest.fixture
def desk():
    failing = Failing("a")
    failing.open_all(1, 2, 3)
    return failing


def test_a_round_that_failed_once_is_made_again_one_by_one(desk):
    desk.round()
    desk.draft_all(1, 2, 3)
    desk.fail()
    assert desk.run(1, 2, 3) == []
    assert desk.sizes[1:5] == [3, 1, 1, 1]
    assert set.union(*desk.served[2:5]) == {1, 2, 3}  # each has its turn
    assert max(desk.sizes[5:]) > 1
    desk.check_texts(1, 2, 3)
    assert desk.core.pool.num_free == desk.core.pool.num_pages


def test_a_prompt_whose_first_round_failed_needs_room_for_all_of_it_again():
    """Twelve pages of four tokens; meanwhile another user's text takes so many that nine of them no longer fit."""
    desk = Failing("a", num_pages=12, max_round_tokens=32, self_draft=False, validates=False)
    desk.open_all(1, prompt=(1,) * 36, max_tokens=4)
    desk.fail()
    assert session_id(1) not in desk.core.pool
    assert desk.core.pool.num_free == 12
    desk.core.pool.extend("other", 16)
    assert desk.round() == []
    assert session_id(1) not in desk.core.pool
    desk.core.pool.free("other")
    assert desk.run(1, num_rounds=10) == []
    assert desk.text() == expected(prompt=(1,) * 36, max_tokens=4)


def test_where_sessions_go_one_by_one_one_without_room_keeps_nobody_waiting():
    """The memory is full, and whoever waited longest is too young to take any: the others go on."""
    desk = Failing("a", num_pages=8, page_size=4, context_len=32, budget=2)
    for number in (1, 2, 3):
        desk.open_all(number, prompt=(1,) * 12, max_tokens=4)
        desk.now += 1.0
    desk.round()
    desk.draft_all(1, 2)
    assert desk.core.pool.length(session_id(3)) == 0  # it has found no room, and is the first in the row
    desk.fail()
    assert desk.run(1, 2, 3) == []
    assert desk.sizes[1:4] == [2, 1, 1]  # still one by one, without the one that finds no room
    assert all(desk.session(number).finished for number in (1, 2, 3))


def test_the_session_that_the_target_always_fails_on_is_given_up_and_no_other(desk):
    desk.round()
    desk.bad = {2}
    [refusal] = desk.run(1, 2, 3)
    assert (refusal.code, refusal.session_id, refusal.epoch) == ("failed", session_id(2), 1)
    assert "OutOfMemoryError" in refusal.what
    assert session_id(2) not in desk.core.sessions
    desk.check_texts(1, 3)
    assert desk.core.pool.num_free == desk.core.pool.num_pages


@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3)])
def test_a_target_that_fails_for_a_while_costs_no_session(numbers):
    desk = Failing("a")
    desk.open_all(*numbers)
    desk.round()
    for _ in range(40):
        desk.fail()
        desk.now += PATIENCE_S / 40
    assert desk.run(*numbers) == []
    desk.check_texts(*numbers)


def test_who_failed_alone_goes_last_until_the_target_works_for_others(desk):
    one, two, three = (desk.session(number) for number in (1, 2, 3))
    isolation = FaultIsolation(desk.core.register, desk.core.replies)
    for number, session in enumerate((one, two)):
        isolation.enter(Stage.IN_FLIGHT, [session])
        assert isolation.failed("error", float(number)) == []
    assert isolation.turns([one, two, three]) == [three, one, two]
    isolation.succeeded([three.session_id])
    assert isolation.turns([three, one, two])[-1] is three
    isolation.enter(Stage.IN_FLIGHT, [one])
    assert [send.message.code for send in isolation.failed("error", 2.0)] == ["failed"]


def test_sessions_that_all_make_rounds_fail_are_given_up_in_the_end(desk):
    desk.bad = {1, 2, 3}
    assert desk.run(1, 2, 3) == []
    desk.now += PATIENCE_S + 0.1
    assert len(desk.run(1, 2, 3)) == 3
    assert desk.core.sessions == {}
    assert desk.core.pool.num_free == desk.core.pool.num_pages


def test_as_many_sessions_as_a_client_may_have_do_not_end_the_node():
    """Each failed round takes a pause of the loop's."""
    desk = Failing("a", max_client_sessions=64, num_pages=256)
    desk.open_all(*range(1, 65))
    desk.bad = set(range(1, 65))
    while desk.core.sessions:
        desk.round()
        desk.now += PAUSE_S
    assert len(desk.sizes) < MAX_FAILURES


def test_one_whose_rounds_fail_slowly_is_given_up_after_few(desk):
    for number in (2, 3):
        desk.core.sessions.drop(desk.session(number))
    for _ in range(MIN_IN_VAIN - 1):
        desk.fail()
        desk.now += 3.0
    desk.broken = True
    [refusal] = desk.round()
    assert refusal.code == "failed"


@pytest.mark.parametrize(
    ("agreement", "evidence"),
    [(float("nan"), ()), (-0.5, ()), (99.0, ()), (1.0, (0.0, float("nan"))), (1.0, (float("inf"), 0.0))],
)
def test_an_outcome_that_cannot_be_costs_its_session_and_no_estimate(desk, agreement, evidence):
    desk.round()
    desk.draft_all(1, 2, 3)
    planned = desk.plan()
    outcomes = desk.target.run(planned)
    place = next(place for place, entry in enumerate(planned.entries) if entry.num_drafted)
    bad = outcomes[place].session_id
    outcomes[place] = replace(outcomes[place], agreement=agreement, evidence=evidence)
    [refusal] = refusals(send.message for send in desk.core.rounds.finish(outcomes, 0.01, desk.now))
    assert (refusal.code, refusal.session_id) == ("failed", bad)
    assert IMPOSSIBLE in refusal.what
    assert len(desk.core.sessions) == 2
    client = desk.core.allocator.client("a")
    assert 0.0 < client.acceptance.value < 1.0
    assert client.suspicion.stake == 1.0
    numbers = {1, 2, 3} - {number_of(bad)}
    desk.run(*numbers)
    desk.check_texts(*numbers)


@pytest.mark.parametrize(
    ("failed", "breaks_constraint", "code"),
    [("its logits are not numbers", False, "failed"), ("too many items", True, "constraint")],
)
def test_an_outcome_that_failed_gives_its_session_up_and_says_whose_fault_it_is(desk, failed, breaks_constraint, code):
    planned = desk.plan()
    outcomes = desk.target.run(planned)
    outcomes[0] = Outcome(outcomes[0].session_id, (), 0, 0.0, failed=failed, breaks_constraint=breaks_constraint)
    answers = [send.message for send in desk.core.rounds.finish(outcomes, 0.01, 0.01)]
    [refusal] = refusals(answers)
    assert (refusal.code, failed in refusal.what) == (code, True)
    assert len([answer for answer in answers if isinstance(answer, Verdict)]) == len(desk.core.sessions) == 2
