"""Eq. (3), (4) and (5) as the verify node applies them, and what else a permission depends on."""

import pytest

from goodspeed.fair import policies
from goodspeed.fair.estimators import INITIAL_ACCEPTANCE, AcceptanceEstimator
from goodspeed.wire.fields import MAX_DRAFT
from tests.fakes import Desk, expected, make_open
from tests.verify_node.phases import new_session, put
from verify_node.scheduler import allocate
from verify_node.scheduler.allocate import FIRST_LENGTH, INITIAL_GOODPUT, LEAST_PERMISSION, PROBE_ROUNDS, Allocator
from verify_node.scheduler.commit import Moved
from verify_node.scheduler.round import Entry, Outcome
from verify_node.session.draft_tokens import DraftTokens


class Given:
    """A policy that does as it is told and remembers what it was asked."""

    def __init__(self, *lengths):
        self.lengths = lengths
        self.asked = []

    def allocate(self, clients, budget):
        self.asked.append((list(clients), budget))
        return [min(length, client.max_length) for length, client in zip(self.lengths, clients, strict=False)]


def make_scheduler(policy="gradient", budget=8, *, is_barrier=True, eta=0.25, weigh_evidence=True):
    policy = policies.create(policy) if isinstance(policy, str) else policy
    return Allocator(policy, budget, eta=eta, beta=0.5, is_barrier=is_barrier, weigh_evidence=weigh_evidence)


def make_session(scheduler, number=1, client="a", **changes):
    """A session that has had its first token, of a client that delivers as much as anybody may."""
    opened = make_open(number, **({"max_tokens": 1000} | changes))
    known = scheduler.client(client)
    known.draft_depth = MAX_DRAFT
    session = new_session(opened, known, scheduler.session_acceptance(known), admitted=number)
    put(session)
    return session


def seen(session, agreement, num_drafted, num_tokens):
    """A round that delivered so many tokens to the session, and verified so many that its draft model drafted."""
    entry = Entry(session.opened, 2, (1,) * (num_drafted + 1), DraftTokens((1,) * num_drafted))
    outcome = Outcome(session.session_id, (7,) * num_tokens, max(0, num_tokens - 1), agreement)
    return Moved(session, entry, outcome, 3, outcome.tokens)


def permit(scheduler, sessions, number=1, round_s=0.01):
    """Returns what each session is permitted after that round, in order, and is told."""
    permitted = scheduler.permit(number, sessions, round_s)
    for session in sessions:
        session.drafts.permit(permitted.get(session.session_id, 0), number)
    return [session.drafts.may_draft for session in sessions]


# -- Eq. (3) and Eq. (4) -----------------------------------------------------------------------------------------------


def test_one_round_by_hand():
    scheduler = make_scheduler(weigh_evidence=False)
    session = make_session(scheduler)
    scheduler.observe(1, [seen(session, agreement=3.0, num_drafted=4, num_tokens=4)])
    assert session.acceptance.value == pytest.approx(0.75 * INITIAL_ACCEPTANCE + 0.25 * 0.75)
    assert session.client.goodput.value == pytest.approx(0.5 * INITIAL_GOODPUT + 0.5 * 4)


def test_what_little_is_known_counts_by_the_token_at_first():
    scheduler = make_scheduler(eta=0.1)
    session = make_session(scheduler)
    scheduler.observe(1, [seen(session, agreement=1.0, num_drafted=4, num_tokens=2)])
    worth = allocate.INITIAL_WORTH
    total = worth * INITIAL_ACCEPTANCE + 1.0
    assert session.acceptance.value == pytest.approx(total / (worth + 4))
    later = make_session(scheduler, 2)  # it starts from what that one has shown, and counts on
    scheduler.observe(2, [seen(later, agreement=2.0, num_drafted=2, num_tokens=3)])
    assert later.acceptance.value == pytest.approx((total + 2.0) / (worth + 6))
    assert session.client.acceptance.value == later.acceptance.value


def test_goodput_is_the_clients_and_acceptance_the_sessions():
    scheduler = make_scheduler()
    one, two = make_session(scheduler, 1), make_session(scheduler, 2)
    other = make_session(scheduler, 3, client="b")
    scheduler.observe(1, [seen(one, 4.0, 4, 5), seen(two, 0.0, 4, 1), seen(other, 1.0, 1, 2)])
    assert one.client.goodput.value == pytest.approx(0.5 * 1 + 0.5 * (5 + 1))  # one observation, tokens summed
    assert other.client.goodput.value == pytest.approx(0.5 * 1 + 0.5 * 2)
    assert one.acceptance.value > INITIAL_ACCEPTANCE > two.acceptance.value

    scheduler.observe(4, [seen(other, 0, 0, 6)])
    kept = 0.5**3  # rounds without an observation count as that many steps
    assert other.client.goodput.value == pytest.approx(kept * (0.5 * 1 + 0.5 * 2) + (1 - kept) * 6 / 3)


def test_an_idle_client_keeps_its_goodput():
    """The rounds between two of its sessions are no rounds of its own; nor does a finished session make it active."""
    desk = Desk("a", "b", beta=0.5)
    desk.begin("a", 1, max_tokens=1)
    goodput = desk.session(1).client.goodput
    assert goodput.value == 1.0
    desk.open("b", 2, max_draft=0, max_tokens=100)
    for _ in range(10):
        desk.round()
    assert desk.session(1).finished
    desk.begin("a", 3)
    assert desk.session(3).client.goodput is goodput
    assert goodput.value == 1.0


# -- Eq. (5) -----------------------------------------------------------------------------------------------------------


def test_the_policy_sees_sessions_with_their_clients_goodput():
    policy = Given(2, 3)
    scheduler = make_scheduler(policy)
    one, two = make_session(scheduler, 1), make_session(scheduler, 2, max_draft=2)
    one.client.weight = 2.5
    one.acceptance = AcceptanceEstimator(0.1, 0.9)
    assert permit(scheduler, [one, two]) == [2, 2]
    [([first, second], budget)] = policy.asked
    assert budget == 8
    assert (first.acceptance_rate, first.goodput, first.weight, first.max_length) == (0.9, INITIAL_GOODPUT, 2.5, 64)
    assert (first.client_id, second.client_id, second.max_length) == ("a", "a", 2)


def test_the_policy_is_told_the_way_there_and_back_and_what_drafting_takes():
    policy = Given(2)
    scheduler = make_scheduler(policy)
    session = make_session(scheduler)
    session.round_trip_s = session.client.round_trip_s = 0.02
    session.client.answer_s = 0.045  # the way, and five tokens
    permit(scheduler, [session])
    [[state], _] = policy.asked[-1]
    assert (state.round_trip_s, state.draft_s_per_token) == (0.02, pytest.approx(0.005))
    assert state.context_len == 3
    session.client.answer_s = 0.01
    permit(scheduler, [session])
    assert policy.asked[-1][0][0].draft_s_per_token == 0.0, "one draft that was quicker than the way is no gain of time"


def test_a_far_draft_node_may_draft_beyond_the_tokens_that_its_drafts_miss():
    """Else they would all be overtaken on arrival, and nothing would ever show that its model reaches farther."""
    scheduler = make_scheduler(Given(0), is_barrier=False)
    session = make_session(scheduler)
    session.client.draft_depth = 0.0
    assert permit(scheduler, [session]) == [LEAST_PERMISSION]
    session.round_trip_s = 0.055
    assert permit(scheduler, [session]) == [LEAST_PERMISSION + 5]
    assert permit(scheduler, [session], round_s=0.0) == [LEAST_PERMISSION], "rounds of unknown duration"
    session.round_trip_s = 99.0
    assert permit(scheduler, [session]) == [MAX_DRAFT]


@pytest.mark.parametrize("is_barrier", [True, False])
def test_nobody_may_draft_more_than_a_message_has_or_its_draft_node_wants(is_barrier):
    scheduler = make_scheduler(Given(500, 500), budget=1000, is_barrier=is_barrier)
    assert permit(scheduler, [make_session(scheduler, 1), make_session(scheduler, 2, max_draft=3)]) == [MAX_DRAFT, 3]


def test_for_whom_nothing_drafts_the_policy_is_not_asked():
    policy = Given(3, 3)
    scheduler = make_scheduler(policy)
    drafting = make_session(scheduler, 1)
    others = [make_session(scheduler, 2, max_draft=0), make_session(scheduler, 3, drafter="none")]
    assert permit(scheduler, [*others, drafting]) == [0, 0, 3]
    [(states, _)] = policy.asked
    assert len(states) == 1
    assert permit(scheduler, others) == [0, 0]
    assert len(policy.asked) == 1


@pytest.mark.parametrize(("is_barrier", "permitted"), [(True, 3), (False, 0)])
def test_indexes_draft_as_they_like_but_where_rounds_wait_for_them(is_barrier, permitted):
    scheduler = make_scheduler(Given(3), is_barrier=is_barrier)
    scheduler.client("a").know_models(has_model=False)
    assert permit(scheduler, [make_session(scheduler, drafter="ngram")]) == [permitted]
    assert permit(scheduler, [make_session(scheduler)]) == [permitted]
    by_ratio = make_session(scheduler, drafter="ngram", verification="ratio")
    for by_ratio.client.answer_s, of_ratio in ((0.0, 3 if is_barrier else FIRST_LENGTH), (0.001, 3)):
        assert permit(scheduler, [by_ratio]) == [of_ratio], "sessions under the ratio rule wait in any rounds"


def test_beside_others_a_ratio_draft_is_as_long_as_fits_into_whole_rounds():
    """It waits for the next round's start anyway. A round takes 10 ms, and a token 4 or 2 ms."""
    scheduler = make_scheduler(Given(8, 8), budget=64, is_barrier=False)
    sessions = [make_session(scheduler, number, verification="ratio") for number in (1, 2)]
    client = sessions[0].client
    for alpha, client.answer_s, by_itself, beside in ((0.9, 0.02, 5, 4), (0.5, 0.01, 2, 0)):
        for session in sessions:
            session.acceptance.value = alpha
        assert permit(scheduler, sessions[:1]) == [by_itself]
        assert permit(scheduler, sessions) == [beside, beside]
    sessions[0].acceptance.value = 0.9
    for _ in range(50):
        sessions[0].acceptance_bound.observe(0, 8)  # its first token is wrong, whatever the others agree with
    assert permit(scheduler, sessions[:1]) == [0]


def test_what_a_ratio_draft_takes_is_known_by_its_own_tokens():
    desk = Desk("a", self_draft=False)
    desk.open(verification="ratio", max_tokens=100)
    for _ in range(2):  # the first draft takes the time of the prompt
        desk.round(0.01)
        desk.now += 0.03
        desk.draft(tokens=(1, 2))
    client = desk.session().client
    assert (client.answer_s, client.answer_tokens) == (pytest.approx(0.03), 3)


def test_a_trial_gives_way_to_what_the_policy_gives():
    scheduler = make_scheduler(policy := Given(0))
    session = make_session(scheduler)
    told = [permit(scheduler, [session], number)[0] for number in range(1, PROBE_ROUNDS + 1)]
    policy.lengths = (5,)
    told += [permit(scheduler, [session], number)[0] for number in range(PROBE_ROUNDS + 1, PROBE_ROUNDS + 4)]
    assert told == [0] * PROBE_ROUNDS + [5] * 3


def test_when_a_session_ends_the_others_keep_their_turns():
    scheduler = make_scheduler("fixed", budget=1)
    sessions = [make_session(scheduler, number, client) for number, client in enumerate("abc", 1)]
    assert permit(scheduler, sessions) == [1, 0, 0]
    assert permit(scheduler, sessions[1:], 2) == [1, 0]


@pytest.mark.parametrize("policy", ["gradient", "fixed", "random"])
def test_barrier_rounds_share_out_exactly_the_budget_and_verify_all_of_it(policy):
    desk = Desk(*"abcd", rounds="barrier", policy=policy, budget=12, context_len=500, num_pages=500)
    for number, name in enumerate("abcd"):
        desk.open(name, number, max_tokens=400)
    desk.round()
    for _ in range(30):
        permitted = sum(desk.session(number).drafts.may_draft for number in range(4))
        assert permitted == 12 or (policy == "random" and permitted <= 12)
        for number, name in enumerate("abcd"):
            if desk.session(number).drafts.may_draft:
                assert desk.round() == []
                desk.draft(name, number, alpha=0.5)
            else:
                desk.acknowledge(number)
        verdicts = desk.round()
        assert len(verdicts) == 4
        verified: list[int] = [verdict.num_verified for verdict in verdicts]
        assert sum(verified) == permitted


def test_a_new_session_begins_with_what_its_client_knows_of_the_way():
    desk = Desk("a", policy="fixed")
    desk.begin()
    desk.now += 0.5
    desk.acknowledge(1)
    desk.open(number=2)
    for number in (1, 2):
        assert desk.session(number).round_trip_s == pytest.approx(0.5)


def test_the_end_of_a_text_counts_as_accepted_where_it_was_drafted_rightly():
    """It is not delivered. Else short texts of the best draft model would look as if a token in each were wrong."""
    desk = Desk("a")
    for number in range(1, 30):
        text = expected(number, max_tokens=6)
        desk.begin(number=number, max_tokens=6, stop_ids=(text[3],))
        while not desk.session(number).finished:
            desk.draft(number=number)
            desk.round()
    shown = desk.core.allocator.clients["a"].acceptance_bound
    assert shown.num_accepted == pytest.approx(shown.num_tried)
    assert shown.num_tried > 50


@pytest.mark.parametrize(("name", "worth"), [("gradient", 0.5), ("fixed", 1.0), ("random", 1.0), ("throughput", 1.0)])
def test_a_tokens_worth_is_that_of_the_policys_utility(name, worth):
    scheduler = make_scheduler(name)
    scheduler.client("a").goodput.value = 2.0
    assert scheduler.worth_of(scheduler.client("a")) == worth


@pytest.mark.parametrize("fairness", [0.0, 1.0, 200.0, 1000.0])
@pytest.mark.parametrize("goodput", [1e-300, 0.02, 1.0, 1e6])
@pytest.mark.parametrize("weight", [5e-324, 1.0, 1000.0])
def test_a_tokens_worth_is_a_number_above_zero_whatever_was_learned(fairness, goodput, weight):
    scheduler = make_scheduler(policies.create("gradient", fairness=fairness))
    client = scheduler.client("a")
    client.goodput.value, client.weight = goodput, weight
    assert 0.0 < scheduler.worth_of(client) < 1e250
    if fairness <= 1.0 and weight == goodput == 1.0:
        assert scheduler.worth_of(client) == 1.0
