"""Policy and key permit drafting beyond each text; drafts of models count as they come."""

from collections.abc import Sequence
from typing import Any

import pytest

from goodspeed.fair.policies import ClientState, OwnPolicy
from goodspeed.wire.fields import MAX_DRAFT
from tests.fakes import Desk, session_id
from verify_node.scheduler.allocate import FIRST_LENGTH, LEAST_PERMISSION, PERMITTED, PROBE_ROUNDS
from verify_node.scheduler.draft_model_switch import MANY_ELSEWHERE


def begin(**opened: Any) -> Desk:
    """A session of a client that has shown that it can draft as much as anybody may."""
    desk = Desk("a", self_draft=False)
    desk.core.allocator.client("a").draft_depth = MAX_DRAFT
    desk.open(**{"max_tokens": 40, **opened})
    return desk


def test_one_session_alone_may_have_all_that_is_shared_out_drafted() -> None:
    desk = begin()
    for _ in range(3):
        desk.session().client.draft_depth = MAX_DRAFT
        [verdict] = desk.round()
        assert verdict.may_draft == desk.session().drafts.may_draft == int(PERMITTED * desk.core.limits.budget) == 24


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
    desk.hello("b")
    desk.open("b", number=2, max_tokens=40)
    quick, slow = desk.session(1), desk.session(2)
    quick.acceptance.value, slow.acceptance.value = 0.95, 0.2
    quick.client.goodput.value, slow.client.goodput.value = 3.0, 1.1
    permitted = {verdict.session_id: verdict.may_draft for verdict in desk.round()}
    assert permitted == {quick.session_id: 23, slow.session_id: LEAST_PERMISSION}
    assert (quick.drafts.may_draft, slow.drafts.may_draft) == (23, LEAST_PERMISSION)


def test_what_a_draft_node_has_not_shown_to_deliver_is_left_to_others() -> None:
    desk = begin()
    desk.open("a", number=2)
    [first, second] = desk.round()
    assert first.may_draft == second.may_draft
    desk.session(1).client.draft_depth = 0.5  # both sessions are this client's
    assert {verdict.may_draft for verdict in desk.round()} == {LEAST_PERMISSION + 1}


def test_longer_drafts_count_quickly_and_silence_slowly() -> None:
    desk = begin()
    desk.round()
    client = desk.session().client
    client.draft_depth = 1.0
    desk.draft(tokens=desk.honest_draft().tokens[:3], complete=False)
    assert client.draft_depth == 2.0
    client.miss_answer(1.0)
    assert client.draft_depth == pytest.approx(1.8)


@pytest.mark.parametrize(
    ("answer_s", "may_draft"), [(0.0, FIRST_LENGTH), (0.001, 8), (0.02, 7), (0.05, 5), (0.5, 0), (60.0, 0)]
)
def test_a_draft_that_is_waited_for_is_as_long_as_lets_the_text_grow_fastest(answer_s: float, may_draft: int) -> None:
    """A round verifies 8; it begins with a few, as long as nobody knows what they take."""
    desk = begin(verification="ratio")
    client = desk.session().client
    client.answer_s, client.answer_tokens = answer_s, 17.0
    [verdict] = desk.round(0.05)
    assert verdict.may_draft == may_draft
    if 0 < may_draft < 24 and answer_s:

        def pace(length: int) -> float:
            tokens: float = sum(client.acceptance.value**place for place in range(length + 1))
            return tokens / (0.05 + answer_s / 17.0 * ((length + 1) if length else 0))

        assert max(range(9), key=pace) == may_draft


def test_whoever_is_slower_with_drafts_is_asked_for_one_token_so_that_it_waits_a_fiftieth_of_its_time() -> None:
    desk = Desk("a", self_draft=False, context_len=9999, num_pages=9999, validates=False)
    desk.open(max_tokens=9000, verification="ratio")
    permitted = []
    for _ in range(600):
        desk.session().client.answer_s = 0.5
        [verdict] = desk.round(0.05)
        permitted.append(verdict.may_draft)
        desk.draft()
    asked = [number for number, may_draft in enumerate(permitted) if may_draft]
    assert set(permitted) == {0, 1}
    assert asked == [500]


class Giving:
    """Gives everybody so much; with None it fails."""

    def __init__(self, length: int | None) -> None:
        self.length = length

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        if self.length is None:
            raise ValueError("no such table")
        return [min(self.length, client.max_length) for client in clients]


def test_a_policy_that_fails_permits_nothing_until_it_answers_again(caplog: pytest.LogCaptureFixture) -> None:
    policy = Giving(None)
    desk = Desk("a", policy=OwnPolicy("mine:Failing", lambda: policy), self_draft=False)
    desk.open()
    assert [verdict.may_draft for _ in range(5) for verdict in desk.round()] == [0] * 5
    why = "the policy mine:Failing failed: ValueError: no such table; draft models may not draft after such a round"
    assert [one.getMessage() for one in caplog.records] == [f"{why} (errors so far: {num})" for num in (1, 2, 4)]
    policy.length = 6
    assert [verdict.may_draft for verdict in desk.round()] == [6]


def test_in_barrier_rounds_who_proposes_nothing_is_permitted_little() -> None:
    """Its tokens once counted for nothing: its rate of acceptance stayed high, and others were permitted less."""
    desk = Desk(rounds="barrier", budget=8, max_round_tokens=64, context_len=999, num_pages=999, self_draft=False)
    permitted = {"a": 0, "b": 0}
    for number, name in enumerate(permitted, 1):
        desk.hello(name, **({} if name == "a" else {"draft_model": ""}))
        desk.open(name, number, max_tokens=900)
    for count in range(60):
        for verdict in desk.round():
            name = "a" if verdict.session_id == session_id(1) else "b"
            permitted[name] += verdict.may_draft if count > 20 else 0
        desk.draft("a", 1, alpha=0.6)
        desk.draft("b", 2, tokens=(), source="ngram")
    assert permitted["a"] > 2 * permitted["b"]


def test_in_barrier_rounds_a_session_without_may_draft_one_token_now_and_then() -> None:
    policy = OwnPolicy("mine:Giving", lambda: Giving(0))
    desk = Desk("a", rounds="barrier", policy=policy, self_draft=False, context_len=999, num_pages=999)
    desk.open(max_tokens=900)
    permitted = []
    for _ in range(50):
        permitted += [verdict.may_draft for verdict in desk.round()]
        desk.draft()
    assert [place for place, may_draft in enumerate(permitted) if may_draft] == [PROBE_ROUNDS, 2 * PROBE_ROUNDS + 1]
    assert set(permitted) == {0, 1}


@pytest.mark.parametrize(
    ("rounds", "too_few", "compares"), [("continuous", 0, True), ("continuous", 1, False), ("barrier", 0, False)]
)
def test_much_work_of_its_own_makes_it_compare_draft_models_elsewhere(rounds, too_few, compares) -> None:
    desk = Desk("a", rounds=rounds)
    for number in range(MANY_ELSEWHERE - too_few):
        desk.open("a", number)
    desk.finish(desk.plan(), work_s=0.01)
    assert desk.core.rounds.model_switch.compares is compares


def test_prompts_that_a_round_reads_count_among_the_sessions_beside_which_draft_models_are_compared() -> None:
    desk = Desk("a", is_shared=True, max_round_tokens=16, context_len=999, num_pages=999)
    desk.open(max_tokens=40)
    desk.round()
    for number in (2, 3, 4):
        desk.open(number=number, prompt=[1] * 100)
    [verdict] = desk.round()
    assert verdict.session_id == session_id(1)
    assert desk.core.rounds.model_switch._least == 2  # it and the prompt whose turn it was
