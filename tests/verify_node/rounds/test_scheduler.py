"""Eq. (3), (4) and (5) as the verify node applies them; probes; and the budget that is handed out."""

import pytest

from experiments.simulation.settings import Settings
from experiments.simulation.world import World
from goodspeed.fair import policies
from goodspeed.fair.estimators import AcceptanceEstimator
from goodspeed.wire.messages import Ack
from tests.fakes import Desk, alone, make_open, request_of, session_id
from tests.verify_node.phases import committed
from verify_node.rounds.scheduler import (
    FIRST_LENGTH,
    INITIAL_ACCEPTANCE,
    INITIAL_GOODPUT,
    INITIAL_WORTH,
    PROBE_ROUNDS,
    Mode,
    Observation,
    Scheduler,
)
from verify_node.session.session import SHARE_SMOOTHING, Session


class Given:
    """A policy that does as it is told and remembers what it was asked."""

    def __init__(self, *lengths):
        self.lengths = lengths
        self.asked = []

    def allocate(self, clients, budget):
        self.asked.append((list(clients), budget))
        return [min(length, client.max_length) for length, client in zip(self.lengths, clients, strict=False)]


def make_scheduler(policy="gradient", budget=8, *, mode=Mode.BARRIER, eta=0.25, beta=0.5, **options):
    policy = policies.create(policy) if isinstance(policy, str) else policy
    return Scheduler(policy, budget, eta=eta, beta=beta, mode=mode, **options)


def make_session(scheduler, number=1, client="a", **changes):
    opened = make_open(number, **({"max_tokens": 1000} | changes))
    known = scheduler.client(client)
    return Session(
        opened,
        b"peer",
        known,
        scheduler.session_acceptance(known),
        list(opened.prompt),
        number,
        3,
        3 + opened.max_tokens,
    )


def lengths_of(scheduler, sessions, number=1, round_s=0.01):
    lengths = scheduler.allocate(number, sessions, committed(*sessions), round_s)
    return [lengths[session.session_id] for session in sessions]


# -- Eq. (3) and Eq. (4) -----------------------------------------------------------------------------------------------


def test_one_round_by_hand():
    scheduler = make_scheduler(weigh_evidence=False)
    session = make_session(scheduler)
    scheduler.observe(1, [Observation(session, agreement=3.0, num_drafted=4, num_tokens=4)])
    assert session.acceptance.value == pytest.approx(0.75 * INITIAL_ACCEPTANCE + 0.25 * 0.75)
    assert session.client.goodput.value == pytest.approx(0.5 * INITIAL_GOODPUT + 0.5 * 4)


def test_what_little_is_known_counts_by_the_token_at_first():
    scheduler = make_scheduler(eta=0.1)
    session = make_session(scheduler)
    scheduler.observe(1, [Observation(session, agreement=1.0, num_drafted=4, num_tokens=2)])
    total = INITIAL_WORTH * INITIAL_ACCEPTANCE + 1.0
    assert session.acceptance.value == pytest.approx(total / (INITIAL_WORTH + 4))
    later = make_session(scheduler, 2)  # it starts from what that one has shown, and counts on
    scheduler.observe(2, [Observation(later, agreement=2.0, num_drafted=2, num_tokens=3)])
    assert later.acceptance.value == pytest.approx((total + 2.0) / (INITIAL_WORTH + 6))
    assert session.client.acceptance.value == later.acceptance.value


def test_a_round_without_a_draft_teaches_goodput_alone():
    scheduler = make_scheduler()
    session = make_session(scheduler)
    scheduler.observe(1, [Observation(session, 0.0, 0, 1)])
    assert session.acceptance.value == pytest.approx(INITIAL_ACCEPTANCE)
    assert session.client.goodput.value == 1.0


def test_goodput_is_the_clients_and_acceptance_the_sessions():
    scheduler = make_scheduler()
    one, two = make_session(scheduler, 1), make_session(scheduler, 2)
    other = make_session(scheduler, 3, client="b")
    scheduler.observe(1, [Observation(one, 4.0, 4, 5), Observation(two, 0.0, 4, 1), Observation(other, 1.0, 1, 2)])
    assert one.client.goodput.value == pytest.approx(0.5 * 1 + 0.5 * (5 + 1))  # one observation, tokens summed
    assert other.client.goodput.value == pytest.approx(0.5 * 1 + 0.5 * 2)
    assert one.acceptance.value > INITIAL_ACCEPTANCE > two.acceptance.value


def test_rounds_without_an_observation_count_as_that_many_steps():
    scheduler = make_scheduler()
    session = make_session(scheduler)
    scheduler.observe(1, [Observation(session, 0, 0, 1)])
    scheduler.observe(4, [Observation(session, 0, 0, 6)])
    keep = 0.5**3
    assert session.client.goodput.value == pytest.approx(keep * 1 + (1 - keep) * 6 / 3)


def test_a_new_session_starts_from_what_its_client_has_shown():
    scheduler = make_scheduler()
    first = make_session(scheduler)
    for number in range(50):
        scheduler.observe(number, [Observation(first, 0.0, 4, 1)])
    assert scheduler.session_acceptance(first.client).value < 0.1
    assert scheduler.client("a") is first.client  # remembered by name
    assert scheduler.session_acceptance(scheduler.client("b")).value == pytest.approx(INITIAL_ACCEPTANCE)


def test_an_idle_client_keeps_its_goodput():
    """The rounds between two of its sessions are no rounds of its own; nor does a finished session make it active."""
    desk = Desk(beta=0.5)
    desk.hello("a")
    desk.hello("b")
    desk.open("a", 1, max_tokens=1)
    desk.round()
    goodput = desk.session(1).client.goodput
    assert goodput.value == 1.0
    desk.open("b", 2, max_draft=0, max_tokens=100)
    for _ in range(10):
        desk.round()
    assert desk.session(1).finished
    desk.open("a", 3)
    desk.round()
    assert desk.session(3).client.goodput is goodput
    assert goodput.value == 1.0


def test_a_slow_clients_goodput_is_per_round():
    desk = Desk(beta=0.5)
    desk.hello("a")
    desk.hello("b")
    desk.open("a", 1)
    desk.round()
    desk.open("b", 2, max_draft=0, max_tokens=100)
    for _ in range(7):
        desk.round()
    desk.draft("a", 1)
    desk.round()
    assert desk.session(1).client.goodput.value == pytest.approx(0.5**8 * 1 + (1 - 0.5**8) * 9 / 8)


# -- Eq. (5) -----------------------------------------------------------------------------------------------------------


def test_the_policy_sees_sessions_with_their_clients_goodput():
    policy = Given(2, 3)
    scheduler = make_scheduler(policy)
    one, two = make_session(scheduler, 1), make_session(scheduler, 2, max_draft=2)
    one.client.weight = 2.5
    one.acceptance = AcceptanceEstimator(0.1, 0.9)
    assert lengths_of(scheduler, [one, two]) == [2, 2]
    [([first, second], budget)] = policy.asked
    assert budget == 8
    assert (first.acceptance_rate, first.goodput, first.weight, first.max_length) == (0.9, INITIAL_GOODPUT, 2.5, 8)
    assert (first.client_id, second.client_id, second.max_length) == ("a", "a", 2)


def test_gradient_gives_more_to_whom_it_helps_more():
    scheduler = make_scheduler(budget=12)
    sessions = [make_session(scheduler, number, client=str(number)) for number in (1, 2, 3)]
    for session, alpha in zip(sessions, (0.9, 0.6, 0.3), strict=True):
        session.acceptance = AcceptanceEstimator(0.1, alpha)
    lengths = lengths_of(scheduler, sessions)
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[2]
    assert sum(lengths) == 12


def test_gradient_gives_more_to_who_got_less():
    scheduler = make_scheduler(budget=12)
    poor, rich = make_session(scheduler, 1, client="poor"), make_session(scheduler, 2, client="rich")
    for number in range(20):
        scheduler.observe(number, [Observation(rich, 0, 0, 8), Observation(poor, 0, 0, 1)])
    lengths = lengths_of(scheduler, [poor, rich])
    assert lengths[0] > lengths[1]


@pytest.mark.parametrize("policy", ["gradient", "fixed", "random"])
def test_no_length_exceeds_the_budget_or_what_is_missing(policy):
    scheduler = make_scheduler(policy, budget=6, mode=Mode.CONTINUOUS)
    sessions = [make_session(scheduler, number, max_tokens=number) for number in (1, 3, 1000)]
    for session in sessions:
        session.share, session.assigned = 0.01, 6  # a lot is handed out
    for number in range(20):
        lengths = lengths_of(scheduler, sessions, number)
        assert lengths[0] == 0
        assert lengths[1] <= 2
        assert lengths[2] <= 6


def test_only_participants_are_told():
    scheduler = make_scheduler(Given(3, 3))
    one, two = make_session(scheduler, 1), make_session(scheduler, 2)
    two.assigned = 1
    assert scheduler.allocate(1, [one, two], committed(one), 0.01) == {session_id(1): 3}
    assert (one.assigned, two.assigned) == (3, 1)


# -- length 0 and probes -----------------------------------------------------------------------------------------------


def test_length_0_is_probed_out_of_the_budget():
    policy = Given(0, 8)
    scheduler = make_scheduler(policy)
    zero, other = make_session(scheduler, 1), make_session(scheduler, 2)
    told = [lengths_of(scheduler, [zero, other], number)[0] for number in range(1, 60)]
    assert [number for number, length in enumerate(told, 1) if length] == [1 + PROBE_ROUNDS, 2 + 2 * PROBE_ROUNDS]
    budgets = [budget for _, budget in policy.asked]
    assert [number for number, budget in enumerate(budgets, 1) if budget == 7] == [21, 42]


def test_a_far_client_is_probed_less_often():
    scheduler = make_scheduler(Given(0))
    session = make_session(scheduler)
    session.round_trip_s = 0.02
    told = [lengths_of(scheduler, [session], number, round_s=0.01)[0] for number in range(1, 300)]
    assert told.index(1) == 200  # 100 round trips of two rounds


def test_a_session_that_takes_no_drafts_is_not_probed():
    scheduler = make_scheduler(Given(0))
    session = make_session(scheduler, max_draft=0)
    assert not any(lengths_of(scheduler, [session], number)[0] for number in range(1, 100))


def test_probes_never_exceed_the_budget():
    scheduler = make_scheduler(Given(*[0] * 10), budget=3)
    sessions = [make_session(scheduler, number) for number in range(10)]
    sums = [sum(lengths_of(scheduler, sessions, number)) for number in range(1, 50)]
    assert max(sums) == 3


def test_who_could_not_draft_is_asked_again_by_a_probe_only():
    scheduler = make_scheduler(Given(4))
    session = make_session(scheduler)
    assert lengths_of(scheduler, [session], 1) == [4]
    session.cannot_draft = True
    told = [lengths_of(scheduler, [session], number)[0] for number in range(2, 30)]
    assert told.index(4) == PROBE_ROUNDS  # the draft model may be back: the policy's length
    assert not session.cannot_draft


def test_a_client_whose_sessions_are_too_short_for_a_probe_gets_one_all_the_same():
    scheduler = make_scheduler(Given(0))
    probed = []
    for number in range(2 * PROBE_ROUNDS + 4):
        if number % 5 == 0:
            session = make_session(scheduler, number + 1)
        lengths = scheduler.allocate(number, [session], committed(session), 0.01)
        if lengths[session.session_id]:
            probed.append(number)
            session.assigned = 0
    # A session of the round before is probed, not one that is new; and the count begins again in the round after.
    assert probed == [PROBE_ROUNDS + 1, 2 * PROBE_ROUNDS + 2]


# -- the budget that is handed out -------------------------------------------------------------------------------------


def test_shares_are_smoothed():
    scheduler = make_scheduler()
    one, two = make_session(scheduler, 1), make_session(scheduler, 2)
    scheduler.observe_shares([one, two], {session_id(1)})
    assert (one.share, two.share) == (1.0, 1.0 - SHARE_SMOOTHING)


def test_the_budget_is_steered_by_shares():
    scheduler = make_scheduler(budget=10, mode=Mode.CONTINUOUS)
    one, two = make_session(scheduler, 1), make_session(scheduler, 2)
    assert scheduler.handed_out([one, two]) == 10  # nobody drafts yet
    one.assigned, two.assigned = 5, 5
    one.share, two.share = 1.0, 0.25
    assert scheduler.handed_out([one, two]) == 16  # 10 * 10 / 6.25
    one.share = two.share = 0.001
    assert scheduler.handed_out([one, two]) == 20  # C for each, no more
    assert make_scheduler(budget=10).handed_out([one, two]) == 10  # barrier: everybody takes part


@pytest.mark.parametrize("policy", ["gradient", "fixed", "random"])
def test_barrier_rounds_hand_out_exactly_the_budget(policy):
    desk = Desk(rounds="barrier", policy=policy, budget=12, context_len=500, num_pages=500)
    for number, name in enumerate("abcd"):
        desk.hello(name)
        desk.open(name, number, max_tokens=400)
    desk.round()
    for _ in range(30):
        drafted = sum(desk.session(number).assigned for number in range(4))
        assert drafted == 12 or (policy == "random" and drafted <= 12)
        for number, name in enumerate("abcd"):
            if desk.session(number).assigned:
                desk.draft(name, number, alpha=0.5)
            else:
                desk.up(name, Ack(session_id(number), 1, len(desk.session(number).tokens)))
        assert len(desk.round()) == 4


NEAR, FAR, MIXED = (0.001,), (0.1,), (0.001, 0.02, 0.05, 0.15)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("policy", "latency_s", "least", "draft_ahead"),
    [
        ("gradient", FAR, 0.9, False),
        ("fixed", FAR, 0.9, False),
        ("fixed", NEAR, 0.9, False),
        ("gradient", NEAR, 0.65, False),
        ("fixed", MIXED, 0.65, False),
        ("fixed", NEAR, 0.85, True),
        ("fixed", FAR, 0.5, True),  # drafts come in pairs, so more of them meet in one round
    ],
)
def test_continuous_rounds_verify_about_the_budget_on_average(policy, latency_s, least, draft_ahead):
    """Of 12 clients few are there in any one round, so each is asked for more; but not for so much that drafts queue.

    Drafts that are there in the same round and exceed the budget together cost the difference to C.
    """
    settings = Settings(
        num_clients=12,
        num_sessions=1,
        num_at_once=1,
        budget=12,
        max_round_tokens=200,
        policy=policy,
        latency_s=latency_s,
        alpha=(0.97, 0.9),
        num_pages=2000,
        page_size=16,
        context_len=3000,
        min_tokens=2000,
        max_tokens=2000,
        stops=0.0,
        draft_ahead=draft_ahead,
    )
    world = World(3, settings)
    world.settle(3.0)
    target = world.verify.target
    before = (target.num_rounds, target.num_drafted, target.num_deferred)
    world.settle(7.0)
    rounds, drafted, deferred = (
        after - count
        for after, count in zip((target.num_rounds, target.num_drafted, target.num_deferred), before, strict=True)
    )
    assert rounds > 300
    assert least * 12 < drafted / rounds <= 12
    assert deferred / rounds < 1.2


def test_what_drafts_take_is_learned_from_them_and_told_to_the_policy():
    policy = Given(2)
    desk = Desk(policy=policy, budget=8)
    desk.hello()
    desk.open(number=1)
    desk.round()
    desk.draft(number=1, drafting_s=0.012)  # two tokens, and catching up
    desk.round()
    [client], _ = policy.asked[-1]
    assert client.draft_s_per_token == pytest.approx(0.004)
    assert client.context_len == len(desk.session().tokens)
    desk.draft(number=1, tokens=(), drafting_s=5.0)
    desk.round()
    assert desk.session().client.draft_s_per_token == pytest.approx(0.004)


def test_the_policy_is_told_the_way_there_and_back_and_what_is_made_ahead():
    policy = Given(2)
    scheduler = make_scheduler(policy)
    session = make_session(scheduler)
    session.ahead_share, session.round_trip_s, session.client.draft_s_per_token = 0.25, 0.02, 0.004
    scheduler.allocate(1, [session], committed(session), 0.01)
    [state], _ = policy.asked[-1]
    assert (state.draft_s_per_token, state.ahead) == (0.004, 0.25)
    assert state.round_trip_s == pytest.approx(0.024)  # and catching up


def test_probes_that_all_wait_for_are_rare():
    """Two probes of 5 ms in 50 rounds of 10 ms are 2 % of everybody's time."""
    scheduler = make_scheduler(Given(0, 0), mode=Mode.BARRIER_TIMED)
    sessions = [make_session(scheduler, number, client) for number, client in enumerate("ab", 1)]
    for session in sessions:
        session.round_trip_s, session.client.draft_s_per_token = 0.003, 0.001
    probed = [number for number in range(1, 130) if any(lengths_of(scheduler, sessions, number, 0.01))]
    assert probed == [51, 102]


def test_where_time_counts_a_clients_first_draft_is_short():
    scheduler = make_scheduler(Given(8), mode=Mode.BARRIER_TIMED)
    first, second = (make_session(scheduler, number) for number in (1, 2))
    assert lengths_of(scheduler, [first]) == [FIRST_LENGTH]
    first.client.observe_drafting(0.5, FIRST_LENGTH)
    assert lengths_of(scheduler, [first]) == lengths_of(scheduler, [second]) == [8]
    assert lengths_of(make_scheduler(Given(8)), [make_session(scheduler, 3, "b")]) == [8]


def test_a_new_session_begins_with_what_its_client_knows_of_the_way():
    desk = Desk(policy="fixed")
    desk.hello("a")
    desk.open()
    desk.round()
    desk.now += 0.5
    desk.up("a", Ack(session_id(1), 1, len(desk.session().tokens)))
    assert desk.session().round_trip_s == pytest.approx(0.5)
    desk.open(number=2)
    assert desk.session(2).round_trip_s == pytest.approx(0.5)


def test_that_drafting_can_be_quick_is_soon_believed():
    client = make_scheduler().client("a")
    client.observe_drafting(0.030, 2)
    assert client.draft_s_per_token == pytest.approx(0.010)
    client.observe_drafting(0.005, 4)
    assert client.draft_s_per_token == pytest.approx(0.0055)  # half of the way
    client.observe_drafting(0.0455, 0)  # nothing drafted
    client.observe_drafting(0.0105, 0)
    assert client.draft_s_per_token == pytest.approx(0.0055)
    client.observe_drafting(0.0310, 1)
    assert client.draft_s_per_token == pytest.approx(0.0065)  # a tenth of it


def test_the_end_of_a_text_counts_as_accepted_where_it_was_drafted_rightly():
    """It is not delivered. Else short texts of the best draft model would look as if a token in each were wrong."""
    desk = Desk()
    desk.hello()
    for number in range(1, 30):
        text = alone(request_of(make_open(number, max_tokens=6)))
        desk.open(number=number, max_tokens=6, stop_ids=(text[3],))
        while not desk.session(number).finished:
            desk.round()
            if desk.session(number).awaits_draft:
                desk.draft(number=number)
    shown = desk.core.scheduler.clients["a"].acceptance_bound
    assert shown.num_accepted == pytest.approx(shown.num_tried)
    assert shown.num_tried > 50


# -- a policy of a user's own that fails -------------------------------------------------------------------------------


class Failing:
    """A policy that fails while it is told to, and else gives everybody two tokens."""

    def __init__(self):
        self.fails = True

    def allocate(self, clients, budget):
        if self.fails:
            raise ValueError("no such table")
        return [min(2, client.max_length) for client in clients]


def test_a_policy_that_fails_costs_drafts_until_it_answers_again(caplog):
    policy = Failing()
    scheduler = make_scheduler(policies.OwnPolicy("mine:Failing", lambda: policy))
    sessions = [make_session(scheduler, number, client) for number, client in enumerate("ab", 1)]
    assert [lengths_of(scheduler, sessions, number) for number in range(1, 6)] == [[0, 0]] * 5
    assert [record.getMessage() for record in caplog.records] == [
        f"the policy mine:Failing failed: ValueError: no such table; nobody drafts after such a round (so far: {num})"
        for num in (1, 2, 4)
    ]
    policy.fails = False
    assert lengths_of(scheduler, sessions, 6) == [2, 2]


@pytest.mark.parametrize("fairness", [0.0, 1.0, 200.0, 1000.0])
@pytest.mark.parametrize("goodput", [1e-300, 0.02, 1.0, 1e6])
@pytest.mark.parametrize("weight", [5e-324, 1.0, 1000.0])
def test_a_tokens_worth_is_a_number_above_zero_whatever_was_learned(fairness, goodput, weight):
    scheduler = make_scheduler(fairness=fairness)
    client = scheduler.client("a")
    client.goodput.value, client.weight = goodput, weight
    assert 0.0 < scheduler.worth_of(client) < 1e250
    if fairness <= 1.0 and weight == goodput == 1.0:
        assert scheduler.worth_of(client) == 1.0
