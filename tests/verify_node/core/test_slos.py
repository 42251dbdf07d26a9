"""Sessions with objectives at the verify node: who is told what, accounts over rounds and reopening, and verdicts."""

from typing import Any

import pytest

from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives, parse_tiers
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.handshake import Leave, SloTerms
from goodspeed.wire.messages import Slo
from tests.fakes import Desk, make_hello, make_open, session_id
from verify_node.slo.promises import GONE_S

TIERS = tuple(parse_tiers(["chat:ttft=500ms,tpot=50ms", "code:tpot=20ms"]).values())
CHAT, CODE = TIERS
KEY = "0" * 40


@pytest.fixture
def desk() -> Desk:
    return Desk(self_draft=False, tiers=TIERS)


def writing(desk: Desk, slo: Slo | None, number: int = 1, **changes: Any) -> Any:
    """A session after its first token."""
    desk.hello(draft_model="")
    desk.begin(number=number, slo=slo, **changes)
    return desk.session(number)


def test_a_key_is_told_what_it_may_ask_for_and_gets_no_more(desk: Desk) -> None:
    desk.core.enrol({KEY: Enrolled("a", KEY, tiers=("chat",))}, 0.0)
    [send] = desk.core.receive(b"a", make_hello(draft_model=""), 0.0, KEY)
    assert send.message.slo == SloTerms((CHAT,), 0.05)
    greedy = Slo(Objectives(tpot_s=0.001, tier="code"))
    desk.core.receive(b"a", make_open(slo=greedy), 0.0, KEY)
    assert desk.session().deadline.slo == Objectives(tpot_s=0.05), "neither the tier nor the time"


def test_a_text_with_two_stages_is_promised_at_the_tighter_tpot(desk: Desk) -> None:
    desk.hello(draft_model="")
    desk.open(slo=Slo(Objectives(tpot_s=0.1, tpot_window=4, thinking_tpot_s=0.05)))
    assert desk.session().deadline.slo == Objectives(tpot_s=0.05, tpot_window=4)


def test_the_account_follows_the_rounds(desk: Desk) -> None:
    deadline = writing(desk, Slo(CHAT, waited_s=0.1)).deadline
    assert (deadline.num_tokens, deadline.first_at, deadline.asked_at) == (1, pytest.approx(0.01), pytest.approx(-0.1))
    desk.acknowledge(1)
    desk.round(0.2)
    assert deadline.num_tokens == 2
    assert deadline.after_first["round"] == pytest.approx(0.2)
    assert deadline.is_behind(desk.now)


def test_opened_again_the_account_goes_on(desk: Desk) -> None:
    session = writing(desk, Slo(CHAT))
    desk.now = 2.0
    committed = tuple(session.tokens[3:])
    desk.open(epoch=2, committed=committed, slo=Slo(CHAT, 2.0, since_first_s=1.99))
    deadline = desk.session().deadline
    assert (deadline.num_tokens, deadline.first_at) == (1, pytest.approx(0.01))
    assert deadline.after_first["away"] == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize("slo", [None, Slo(Objectives(tier="chat"))])
def test_who_asks_for_nothing_in_particular_has_no_account(desk: Desk, slo: Slo | None) -> None:
    assert writing(desk, slo).deadline is None


@pytest.mark.parametrize(
    ("tier", "round_s", "attained", "late"),
    [("chat", 0.01, {"chat": 1}, {}), ("chat", 0.3, {}, {("chat", "round"): 1}), ("invented", 0.01, {"other": 1}, {})],
)
def test_texts_are_judged_when_they_are_complete(desk: Desk, tier: str, round_s: float, attained: Any, late: Any):
    writing(desk, Slo(CHAT if tier == "chat" else Objectives(tpot_s=1.0, tier=tier)))
    while not desk.session().finished:
        desk.round(round_s)
        desk.acknowledge(1)
    counts = desk.core.counts
    assert (dict(counts.num_attained), dict(counts.violations)) == (attained, late)


def test_a_complete_text_that_is_opened_again_is_judged_once(desk: Desk) -> None:
    """Its last verdict was lost, again and again."""
    session = writing(desk, Slo(CHAT), max_tokens=6)
    while not session.finished:
        desk.round()
        desk.acknowledge(1)
    text = tuple(session.tokens[3:])
    for epoch in (2, 3):
        desk.open(epoch=epoch, committed=text[:-1], slo=Slo(CHAT), max_tokens=6)
        desk.round()
        assert (desk.session().finished, tuple(desk.session().tokens[3:])) == (True, text)
    assert (dict(desk.core.counts.num_attained), desk.core.counts.num_tokens) == ({"chat": 1}, 6)


def test_a_text_that_waits_for_its_draft_node_waits_for_the_network(desk: Desk) -> None:
    session = writing(desk, Slo(CHAT), max_tokens=60)
    while desk.round():
        pass
    desk.now += 1.0
    desk.acknowledge(1)
    assert session.deadline.after_first["network"] == pytest.approx(1.0)


def test_the_round_that_reads_a_short_prompt_is_prefill(desk: Desk) -> None:
    desk.hello(draft_model="")
    desk.open(slo=Slo(CHAT))
    desk.round(0.6)
    assert desk.session().deadline.before_first["prefill"] == pytest.approx(0.6)


def test_a_text_that_waits_for_memory_is_known_to() -> None:
    desk = Desk("a", tiers=TIERS, admission="none", num_pages=6, page_size=4, draft_model="")
    desk.begin(number=1, prompt=range(1, 17))
    desk.open(number=2, prompt=range(1, 17), slo=Slo(CHAT))
    for _ in range(2):
        desk.acknowledge(1)
        desk.round(0.2)
    assert desk.session(2).deadline.before_first["memory"] == pytest.approx(0.2)


@pytest.mark.parametrize("end", ["leave", "lost", "stuck"])
def test_promises_end_also_while_no_round_takes_place(end: str) -> None:
    """Else the fleet takes an idle replica for a full one."""
    desk = Desk(self_draft=False, tiers=TIERS, cost=Linear(0.005, 0.0001), num_pages=256)
    session = writing(desk, Slo(CHAT), max_tokens=200)
    assert desk.core.promises.num_pages > 0
    if end == "leave":
        desk.up("a", Leave())
    elif end == "lost":
        desk.now += 30.0
    else:
        while desk.round():
            pass  # its draft node acknowledges nothing
        desk.now += GONE_S + 0.1
    desk.core.tick(desk.now)
    assert (desk.core.promises.promised, desk.core.load(desk.now).paces) == ({}, ())
    assert session.promised is (end != "stuck")


def test_a_promise_does_not_end_while_a_long_round_hides_that_its_session_can_move_again() -> None:
    desk = Desk(self_draft=False, tiers=TIERS, cost=Linear(0.005, 0.0001), num_pages=256)
    session = writing(desk, Slo(CHAT), max_tokens=200)
    desk.open(number=2, max_tokens=200)
    while session.can_move(desk.core.rounds.round_s):
        desk.round()
    planned = desk.plan()
    assert [entry.session_id for entry in planned.entries] == [session_id(2)]
    desk.acknowledge(1)
    assert session.can_move(desk.core.rounds.round_s)
    desk.now += GONE_S + 1.0
    desk.core.tick(desk.now)
    assert session.promised
