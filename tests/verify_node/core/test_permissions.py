"""Draft models that offer unasked: who may, how much, and what becomes of lengths and of a client's calibration."""

from collections.abc import Sequence
from typing import Any

import pytest

from goodspeed.fair.policies import ClientState, OwnPolicy
from goodspeed.wire import odds
from goodspeed.wire.fields import MAX_OFFER, OfferSource
from goodspeed.wire.messages import Offer
from tests.fakes import Desk, alone, make_open, request_of
from verify_node.core.settings import PERMITTED, CoreSettings, PolicySettings
from verify_node.rounds.scheduler import LEAST_PERMISSION

KNOWN = ("odds", "offers", "model_offers")
TEXT = tuple(alone(request_of(make_open(1, max_tokens=40))))


def begin(capabilities: tuple[str, ...] = KNOWN, *, selection: str = "odds", **opened: Any) -> Desk:
    desk = Desk(selection=selection, self_draft=False)
    desk.hello(capabilities=capabilities)
    deliver(desk, "a")
    desk.open(**{"max_tokens": 40, **opened})
    return desk


def deliver(desk: Desk, *names: str) -> None:
    """Has these clients have shown that they can draft as much as anybody may."""
    for name in names:
        desk.core.scheduler.client(name).delivered = MAX_OFFER


def offer_of(desk: Desk, *, source: OfferSource = "model", wrong: bool = False) -> Offer:
    session = desk.session(1)
    first = len(session.tokens) - len(session.opened.prompt)
    tokens = tuple((token + 1) % 6 if wrong else token for token in TEXT[first : first + 3])
    return Offer(session.session_id, session.epoch, len(session.tokens), tokens, odds.encode([0.9] * 3), source)


def test_a_draft_model_that_may_offer_is_assigned_no_length_and_told_how_much_it_may() -> None:
    desk = begin()
    for _ in range(3):
        deliver(desk, "a")
        [verdict] = desk.round()
        assert verdict.next_length == 0
        assert verdict.may_draft == min(MAX_OFFER, int(PERMITTED * desk.core.limits.budget), 40)


def test_what_is_permitted_is_shared_equally_among_equals_but_not_in_pieces_that_come_too_late() -> None:
    desk = begin()
    desk.open(number=2, max_tokens=40)
    first, second = desk.round()
    assert first.may_draft + second.may_draft == PERMITTED * 8
    for number in range(3, 9):
        desk.open(number=number)
    assert {verdict.may_draft for verdict in desk.round()} == {LEAST_PERMISSION}


def test_what_is_permitted_is_the_policys_allocation() -> None:
    """Eq. (5): the sum of w / X x alpha^s is the largest that so many tokens can have, and nobody has less than 4."""
    desk = begin()
    desk.hello("b", capabilities=KNOWN)
    desk.open("b", number=2, max_tokens=40)
    quick, slow = desk.session(1), desk.session(2)
    quick.acceptance.value, slow.acceptance.value = 0.95, 0.2
    quick.client.goodput.value, slow.client.goodput.value = 3.0, 1.1
    permitted = {verdict.session_id: verdict.may_draft for verdict in desk.round()}
    assert permitted == {quick.session_id: 23, slow.session_id: LEAST_PERMISSION}
    assert (quick.may_draft, slow.may_draft) == (23, LEAST_PERMISSION)


def test_what_a_draft_node_has_not_shown_to_deliver_is_left_to_others() -> None:
    desk = begin()
    desk.open("a", number=2)
    [first, second] = desk.round()
    assert first.may_draft == second.may_draft
    desk.session(1).client.delivered = 0.5  # both sessions are this client's
    assert {verdict.may_draft for verdict in desk.round()} == {LEAST_PERMISSION + 1}


def test_longer_offers_count_quickly_and_silence_slowly() -> None:
    desk = begin()
    desk.round()
    client = desk.session().client
    client.delivered = 1.0
    desk.up("a", offer_of(desk))  # of three tokens
    assert client.delivered == 2.0
    client.miss_offer(1.0)
    assert client.delivered == pytest.approx(1.8)


@pytest.mark.parametrize(
    ("capabilities", "selection", "opened"),
    [
        (("odds", "offers"), "odds", {}),
        (KNOWN, "none", {}),
        (KNOWN, "odds", {"verification": "ratio"}),
    ],
)
def test_others_are_assigned_lengths_as_ever(
    capabilities: tuple[str, ...], selection: str, opened: dict[str, str]
) -> None:
    [verdict] = begin(capabilities, selection=selection, **opened).round()
    assert (verdict.next_length > 0, verdict.may_draft) == (True, 0)


@pytest.mark.parametrize("drafter", ["ngram", "none"])
def test_a_user_who_wants_no_model_gets_none(drafter: str) -> None:
    [verdict] = begin(drafter=drafter).round()
    assert (verdict.next_length, verdict.may_draft) == (0, 0)


def test_what_the_model_offers_is_verified_and_counted_as_the_models() -> None:
    desk = begin()
    desk.round()
    desk.up("a", offer_of(desk))
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.num_accepted, verdict.source) == (3, 3, "model")
    assert desk.text() == TEXT[:5]
    client = desk.session().client
    assert client.num_accepted_by == {"model": 3}
    assert sum(client.calibration("model").tries) > 2.9
    assert not sum(client.calibration("ngram").tries)


def test_a_wrong_offer_of_a_model_changes_no_text() -> None:
    desk = begin()
    desk.round()
    desk.up("a", offer_of(desk, wrong=True))
    [verdict] = desk.round()
    assert verdict.num_accepted == 0
    assert desk.text() == TEXT[:2]


@pytest.mark.parametrize(("drafter", "source"), [("model", "ngram"), ("ngram", "model")])
def test_what_the_user_does_not_want_is_not_verified(drafter: str, source: OfferSource) -> None:
    desk = begin(drafter=drafter)
    desk.round()
    desk.up("a", offer_of(desk, source=source))
    [verdict] = desk.round()
    assert verdict.num_verified == 0


def test_one_that_crosses_the_last_verdict_asks_for_nothing() -> None:
    desk = begin(max_tokens=2)
    desk.round()
    late = offer_of(desk)
    desk.round()
    assert desk.session().finished
    assert desk.up("a", late) == []


def test_who_may_not_offer_takes_no_part_of_what_is_permitted() -> None:
    desk = begin()
    desk.hello("b", capabilities=("odds", "offers", "no_model"))
    for number in range(2, 9):
        desk.open("b", number)
    lengths = {verdict.session_id: verdict.may_draft for verdict in desk.round()}
    assert sorted(lengths.values())[-2:] == [0, min(int(PERMITTED * desk.core.limits.budget), 40)]


def test_a_session_opened_under_ratio_is_assigned_lengths_whatever_its_client_was_proven() -> None:
    desk = begin(verification="ratio")
    desk.session().client.suspicion.proven = True
    [verdict] = desk.round()
    assert desk.session().verification == "match"
    assert verdict.next_length > 0


@pytest.mark.parametrize("name", ["fixed", "random", "throughput"])
def test_every_policy_shares_out_permissions(name: str) -> None:
    policy = PolicySettings(name=name)
    assert CoreSettings(policy=policy).selects
    desk = Desk(policy=name, selection="odds", self_draft=False)
    for number, client in enumerate("ab", 1):
        desk.hello(client, capabilities=KNOWN)
        desk.open(client, number=number, max_tokens=40)
    deliver(desk, "a", "b")
    desk.session(1).acceptance.value, desk.session(2).acceptance.value = 0.9, 0.3
    desk.session(2).client.goodput.value = 100.0
    permitted = [verdict.may_draft for verdict in desk.round()]
    wanted = policy.create().allocate([ClientState(0.9, 1.0), ClientState(0.3, 100.0)], int(PERMITTED * 8))
    assert permitted == [max(LEAST_PERMISSION, length) for length in wanted]
    assert desk.core.scheduler.worth_of(desk.session(2).client) == 1.0, "only a policy with a utility weighs goodput"


def test_a_policy_that_fails_permits_nothing_until_it_answers_again() -> None:
    class Failing:
        fails = True

        def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
            if self.fails:
                raise ValueError("no such table")
            return [min(6, client.max_length) for client in clients]

    policy = Failing()
    desk = Desk(policy=OwnPolicy("mine:Failing", lambda: policy), selection="odds", self_draft=False)
    desk.hello(capabilities=KNOWN)
    desk.open()
    assert [verdict.may_draft for verdict in desk.round()] == [0]
    policy.fails = False
    assert [verdict.may_draft for verdict in desk.round()] == [6]
