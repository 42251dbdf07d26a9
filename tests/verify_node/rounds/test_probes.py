"""Drafts that are asked for to learn: when, how long, and what they cost."""

import pytest

from tests.fakes import make_open
from tests.verify_node.phases import committed
from verify_node.rounds import probes
from verify_node.rounds.scheduler import Mode, Observation, Scheduler
from verify_node.session.session import Session


class Picky:
    """Drafts where acceptance is as good as it asks for."""

    def __init__(self, least=0.9, length=6):
        self.least, self.length = least, length
        self.budgets = []

    def allocate(self, clients, budget):
        self.budgets.append(budget)
        return [
            min(self.length, client.max_length) if client.acceptance_rate >= self.least else 0 for client in clients
        ]


def make_scheduler(policy, budget=8):
    return Scheduler(policy, budget, eta=0.1, beta=0.1, mode=Mode.CONTINUOUS_TIMED)


def make_session(scheduler, number=1, client="a", **changes):
    opened = make_open(number, **({"max_tokens": 1000} | changes))
    known, tokens = scheduler.client(client), list(opened.prompt)
    acceptance = scheduler.session_acceptance(known)
    return Session(opened, b"peer", known, acceptance, tokens, number, 3, 3 + opened.max_tokens)


def told(scheduler, sessions, numbers, round_s=0.01):
    """The first session's lengths; none of the drafts is ever verified."""
    return [
        scheduler.allocate(number, sessions, committed(*sessions), round_s)[sessions[0].session_id]
        for number in numbers
    ]


def rounds_with_a_draft(lengths):
    return [number for number, length in enumerate(lengths, 1) if length]


def verify(scheduler, session, number, num_accepted, num_drafted=probes.LENGTH):
    scheduler.observe(number, [Observation(session, float(num_accepted), num_drafted, num_accepted + 1)])


def test_what_nearly_pays_is_tried_soon_and_out_of_the_budget():
    scheduler = make_scheduler(policy := Picky())
    lengths = told(scheduler, [make_session(scheduler)], range(1, 50))
    assert rounds_with_a_draft(lengths) == [1 + probes.FEWEST_ROUNDS, 2 + 2 * probes.FEWEST_ROUNDS]
    assert lengths[probes.FEWEST_ROUNDS] == probes.LENGTH
    assert min(policy.budgets) == 8 - probes.LENGTH
    assert policy.budgets.count(8 - probes.LENGTH) == 2


def test_probes_lose_a_hundredth_of_the_tokens():
    """By hand: away for 20 + 5 x 2 ms, 3 rounds and its own, in which 1.25 tokens come."""
    scheduler = make_scheduler(Picky())
    session = make_session(scheduler)
    session.acceptance.value, session.round_trip_s, session.client.draft_s_per_token = 0.2, 0.02, 0.002
    due = 276  # (4 - 1.2496) / 0.01 rounded up
    first = 1 + due
    assert rounds_with_a_draft(told(scheduler, [session], range(1, first + 1))) == [first]
    verify(scheduler, session, first, 0)
    session.acceptance.value = 0.2
    second = rounds_with_a_draft(told(scheduler, [session], range(first + 1, first + due + 10)))
    assert second == [due + 1]


def test_nothing_is_tried_that_would_not_pay_in_any_case():
    scheduler = make_scheduler(Picky(least=0.97))
    assert not any(told(scheduler, [make_session(scheduler)], range(1, 200)))


def test_a_session_that_takes_no_drafts_is_not_probed():
    scheduler = make_scheduler(Picky())
    assert not any(told(scheduler, [make_session(scheduler, max_draft=0)], range(1, 100)))


def test_probes_never_exceed_the_budget():
    scheduler = make_scheduler(Picky(), budget=6)
    sessions = [make_session(scheduler, number) for number in range(10)]
    sums = [sum(scheduler.allocate(number, sessions, committed(*sessions), 0.01).values()) for number in range(1, 50)]
    assert max(sums) == 6


def test_a_probe_that_does_well_is_followed_at_once_but_not_for_ever():
    scheduler = make_scheduler(Picky(least=0.95))
    session = make_session(scheduler)
    session.acceptance.worth = 1000.0  # hardly moved by a few drafts
    [number] = rounds_with_a_draft(told(scheduler, [session], range(1, 22)))
    in_a_row = 1
    while True:
        verify(scheduler, session, number, probes.LENGTH)
        number += 1
        if not told(scheduler, [session], [number])[0]:
            break
        in_a_row += 1
    assert in_a_row == probes.MOST_IN_A_ROW
    session.acceptance.value, session.round_trip_s = 0.2, 0.01
    session.client.draft_s_per_token = 1e-9
    [again, *_] = rounds_with_a_draft(told(scheduler, [session], range(number + 1, number + 2000)))
    expected = probes.MOST_COUNTED * (2.0 - 1.2496) / 0.01  # so many probes lost more tokens than one
    assert again == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(("num_accepted", "again"), [(probes.LENGTH - 1, True), (probes.LENGTH - 2, False)])
def test_only_what_does_well_is_followed_at_once(num_accepted, again):
    scheduler = make_scheduler(Picky(least=0.95))
    session = make_session(scheduler)
    [number] = rounds_with_a_draft(told(scheduler, [session], range(1, 22)))
    verify(scheduler, session, number, num_accepted)
    assert bool(told(scheduler, [session], [number + 1])[0]) is again


def test_a_client_that_became_good_again_drafts_soon():
    """After a long time at length 0 a few probes outweigh what was known: Eq. (3) alone would take 14 drafts."""
    scheduler = make_scheduler(Picky(least=0.8))
    session = make_session(scheduler)
    for number in range(200):
        verify(scheduler, session, number, 0)
    assert session.acceptance.value < 0.01
    session.round_trip_s, session.client.draft_s_per_token = 0.01, 1e-9
    num_drafts, number = 0, 200
    while session.acceptance.value < 0.8:
        number += 1
        if told(scheduler, [session], [number])[0]:
            num_drafts += 1
            verify(scheduler, session, number, probes.LENGTH)
    assert num_drafts <= 9
    assert number < 200 + 2 * 350


def test_who_could_not_draft_is_asked_again_by_a_probe_only():
    scheduler = make_scheduler(Picky(least=0.5))
    session = make_session(scheduler)
    session.client.draft_s_per_token = 0.001  # not its first draft
    assert told(scheduler, [session], [1]) == [6]
    session.cannot_draft = True
    lengths = told(scheduler, [session], range(2, 30))
    assert probes.FEWEST_ROUNDS <= lengths.index(6) < 28  # the draft model may be back: the policy's length
    assert not session.cannot_draft


def test_a_client_whose_sessions_are_too_short_for_a_probe_gets_one_all_the_same():
    scheduler = make_scheduler(Picky())
    probed = []
    for number in range(2 * probes.FEWEST_ROUNDS + 4):
        if number % 5 == 0:
            session = make_session(scheduler, number + 1)
        if scheduler.allocate(number, [session], committed(session), 0.01)[session.session_id]:
            probed.append(number)
    # A session of the round before is probed, not one that is new; and the count begins again in the round after.
    assert probed == [probes.FEWEST_ROUNDS + 1, 2 * probes.FEWEST_ROUNDS + 2]


@pytest.mark.parametrize(("num_accepted", "again"), [(probes.LENGTH, True), (1, False)])
def test_a_clients_first_draft_is_a_probe(num_accepted, again):
    """A client whose first draft does well drafts again at once, though by one draft it does not seem to pay."""
    scheduler = make_scheduler(policy := Picky(least=0.5))
    session = make_session(scheduler)
    assert told(scheduler, [session], [1]) == [probes.LENGTH]
    session.client.draft_s_per_token = 0.001
    verify(scheduler, session, 1, num_accepted)
    policy.least = 0.95
    assert bool(told(scheduler, [session], [2])[0]) is again
