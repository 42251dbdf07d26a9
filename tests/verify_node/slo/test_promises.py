"""Promises at the verify node: who gets one, who is told, what a round does for them, and what breaks none."""

from typing import Any

import pytest
from msgspec.structs import replace

from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import OTHER, Objectives
from goodspeed.wire.messages import Close, Refusal, Slo, Verdict
from tests.fakes import Desk, alone, make_open, request_of, session_id
from tests.verify_node.answers import fed
from tests.verify_node.scheduler.drafting import pack
from tests.verify_node.slo.deadlines import deadline, decided
from verify_node.scheduler.round import Round, context_read
from verify_node.session.session import MAX_RETURNS, WINDOW
from verify_node.slo.allotting import Allotment
from verify_node.slo.promises import AT_ONCE, GONE_S

COST = Linear(fixed_s=0.004, token_s=0.004)
"""A round of so many tokens takes 4 ms more than 4 ms a token: 1 token 8 ms, 4 tokens 20 ms, 9 tokens 40 ms."""

QUICK = Slo(Objectives(ttft_s=0.1, tpot_s=0.02))
"""Three sessions of it can be promised: a round of 20 ms carries four tokens, and three quarters are promised."""


def promising(*names: str, **options: Any) -> Desk:
    """Rounds take what COST says; nobody drafts."""
    return Desk(*names, self_draft=False, admission="dp", draft_model="", **({"cost": COST} | options))


@pytest.fixture
def desk() -> Desk:
    return promising("a")


def ask(desk: Desk, number: int, slo: Slo | None = QUICK, **changes: Any) -> bool | None:
    """Opens a session that is not refused; whether it is promised what it asks for, which its verdicts will tell."""
    assert desk.open(number=number, slo=slo, **changes) == []
    promised: bool | None = desk.session(number).promised
    return promised


def finish(desk: Desk, planned: Round, work_s: float = 0.0) -> list[Any]:
    """The round takes as long as it should, beside the node's own work."""
    duration_s = COST.round_s(planned.num_tokens, len(planned.entries), planned.context_tokens)
    return desk.finish(planned, duration_s, work_s)


def serve(desk: Desk, work_s: float = 0.0) -> list[Any]:
    """A round, if there is one, of which everything is acknowledged."""
    planned = desk.core.plan(desk.now)
    if planned is None:
        return []
    answers = finish(desk, planned, work_s)
    desk.acknowledge()
    return answers


def serve_unheard(desk: Desk) -> None:
    """Rounds until all windows are full, since nothing is acknowledged."""
    while (planned := desk.core.plan(desk.now)) is not None:
        finish(desk, planned)


def due(desk: Desk) -> float:
    """Seconds until the next token of session 1 is due by its promise."""
    return desk.core.promises.promised[session_id(1)].due - desk.now


def told(answers: list[Any]) -> dict[bytes, bool | None]:
    """Returns what verdicts say of promises, by session."""
    return {answer.session_id: answer.promised for answer in answers if isinstance(answer, Verdict)}


def test_who_can_be_served_in_time_is_promised_that_and_told_with_every_verdict(desk: Desk) -> None:
    assert ask(desk, 1) is True
    assert desk.core.counts.promises == {(OTHER, "promised"): 1}
    for _ in range(3):
        assert told(serve(desk)) == {session_id(1): True}


@pytest.mark.parametrize(("work_s", "is_promised"), [(0.0, True), (0.009, False)])
def test_rounds_are_planned_with_the_nodes_own_work(desk: Desk, work_s: float, is_promised: bool) -> None:
    """A round of 20 ms carries four tokens, of which three are promised; beside 9 ms of own work it carries one."""
    ask(desk, 1)
    for _ in range(20):
        serve(desk, work_s)
    assert ask(desk, 2) is is_promised


def test_the_work_for_texts_that_are_over_is_forgotten(desk: Desk) -> None:
    for number in range(1, 51):
        ask(desk, number, None)
    for _ in range(30):
        serve(desk, work_s=0.02)
    for number in range(1, 51):
        desk.up("a", Close(session_id(number), 1))
    assert ask(desk, 51) is True


PER_ROW = Linear(fixed_s=0.005, token_s=0.0005, session_s=0.0002, context_s=0.0005 / 1024)


def test_a_prompt_is_promised_with_what_its_rows_read_where_each_row_reads_its_context() -> None:
    """OpenVINO reads the cached tokens for each row: 2,000 tokens then take twice as long. Neither the prompt's promise
    is broken, nor that of the text beside it."""
    sizes = {"num_pages": 1000, "page_size": 16, "context_len": 4096, "max_round_tokens": 512, "budget": 24}
    desk = promising("a", "b", cost=Refined(PER_ROW, reads_per_row=True), validates=False, **sizes)

    def serve() -> None:
        planned = desk.core.plan(desk.now)
        assert planned is not None
        inside = sum(len(entry.tokens) ** 2 / 2 for entry in planned.entries)
        context = context_read(planned.entries, per_row=True) + inside
        desk.finish(planned, PER_ROW.round_s(planned.num_tokens, len(planned.entries), context))
        desk.acknowledge()

    assert ask(desk, 1, Slo(Objectives(ttft_s=1.0, tpot_s=0.05)), max_tokens=400)
    serve()
    slo = [Slo(Objectives(ttft_s=ttft_s, tpot_s=0.2)) for ttft_s in (1.8, 4.0)]
    prompt = tuple(1 + i * i % 29 for i in range(2000))
    assert desk.open("b", number=2, slo=slo[0], prompt=prompt, otherwise="refuse") != [], "else it is enough"
    desk.open("b", number=3, slo=slo[1], prompt=prompt[::-1])
    assert desk.session(3).promised
    chat, other = desk.session(1), desk.session(3)
    asked_at = desk.now
    while other.deadline.first_at is None:
        serve()
    assert other.deadline.first_at - asked_at < 4.0
    assert chat.deadline is not None
    assert not chat.deadline.is_slow


def test_who_cannot_gets_what_is_left_or_nothing_as_it_asked(desk: Desk) -> None:
    never = Slo(Objectives(ttft_s=0.1, tpot_s=0.008))
    assert ask(desk, 1, never) is False
    [refused] = desk.open(number=2, slo=never, otherwise="refuse")
    assert (refused.code, refused.session_id) == ("not_promised", session_id(2))
    assert "again later" in refused.what_to_do
    assert list(desk.core.sessions) == [session_id(1)]
    assert desk.core.counts.promises == {(OTHER, "declined"): 1, (OTHER, "refused"): 1}
    assert told(serve(desk)) == {session_id(1): False}


@pytest.mark.parametrize(("admission", "slo"), [("dp", None), ("none", QUICK)], ids=["nothing asked", "none promised"])
def test_nothing_is_said_where_nothing_is_asked_for_or_promised(admission: str, slo: Slo | None) -> None:
    desk = Desk(self_draft=False, admission=admission, cost=COST)
    assert desk.hello(draft_model="").promises is (admission == "dp")
    assert ask(desk, 1, slo) is None
    assert told(serve(desk)) == {session_id(1): None}


def test_those_who_come_during_a_round_are_decided_together_after_it(desk: Desk) -> None:
    ask(desk, 1, None)
    planned = desk.plan()
    for number in range(2, 7):
        assert ask(desk, number) is None
    assert told(desk.finish(planned)) == {session_id(1): None}
    decided = [desk.session(number).promised for number in range(2, 7)]
    assert sorted(decided) == [False] * decided.count(False) + [True] * decided.count(True)
    assert 1 <= decided.count(True) <= 3
    said: dict[bytes, bool | None] = {}
    for _ in range(12):
        said |= told(serve(desk))
    assert [said[session_id(number)] for number in range(2, 7)] == decided


def many(slo: Slo, number: int, **changes: Any) -> Desk:
    """A desk with a promised text, 1, and as many more, from 100 on, that wait for a decision."""
    desk = promising("a", cost=None, max_round_tokens=512, num_pages=10 * number)
    assert ask(desk, 1, Slo(Objectives(ttft_s=5.0, tpot_s=1.0))) is True
    planned = desk.plan()
    for other in range(number):
        desk.open(number=100 + other, slo=slo, **changes)
    desk.finish(planned)
    return desk


def test_texts_that_wait_for_a_decision_are_in_no_round_and_end_no_promise() -> None:
    """A text without a TPOT has no deadline left once it has a token, so nothing could be decided."""
    desk = many(Slo(Objectives(ttft_s=5.0)), AT_ONCE + 20)
    later = [session_id(100 + other) for other in range(AT_ONCE, AT_ONCE + 20)]
    planned = desk.plan()
    assert {entry.session_id for entry in planned.entries} == desk.core.sessions.keys() - {*later}
    desk.finish(planned)
    assert [session.promised for session in desk.core.sessions.values()] == [True] * (1 + AT_ONCE + 20)
    assert {*later} < {entry.session_id for entry in desk.plan().entries}


def test_a_text_is_refused_before_its_first_token_or_not_at_all() -> None:
    never = Slo(Objectives(ttft_s=0.001, tpot_s=0.00001))
    desk = many(never, AT_ONCE + 20, otherwise="refuse")
    assert len(desk.core.sessions) == 1 + 20
    answers = desk.finish(desk.plan())
    assert [type(answer) for answer in answers] == [Verdict, *[Refusal] * 20]
    assert list(desk.core.sessions) == [session_id(1)]


def test_a_text_whose_promise_ended_is_not_refused_when_its_opening_comes_again(desk: Desk) -> None:
    assert ask(desk, 1, otherwise="refuse") is True
    for _ in range(2):
        serve(desk)
        desk.core.admission.withdraw(desk.now)
        assert isinstance(desk.open(number=1, slo=QUICK, otherwise="refuse")[0], Verdict), "and no refusal"
        assert desk.session(1).promised is False


SLOW = Slo(Objectives(ttft_s=5.0))
NEVER = Slo(Objectives(tpot_s=0.008), 0.1, 0.01)


@pytest.mark.parametrize(
    ("first", "again", "is_kept"),
    [
        pytest.param((QUICK, 3), (replace(QUICK, waited_s=0.1, since_first_s=0.01), 3), True, id="as it was"),
        pytest.param((QUICK, 3), (NEVER, 3), False, id="a tighter TPOT"),
        pytest.param((SLOW, 99), (replace(SLOW, waited_s=0.1), 99), True, id="before its first token"),
        pytest.param((SLOW, 99), (Slo(Objectives(ttft_s=0.01)), 99), False, id="a tighter TTFT"),
        pytest.param((QUICK, 3), (QUICK, 30), False, id="thirty tokens in 0.1 s are too many"),
    ],
)
def test_a_text_opened_again_keeps_its_promise_unless_it_asks_for_more_or_is_another(desk, first, again, is_kept):
    assert ask(desk, 1, first[0], prompt=(1,) * first[1], max_tokens=60) is True
    committed: tuple[int, ...] = ()
    if again[0].since_first_s is not None:
        serve(desk)
        committed = desk.text()
    assert ask(desk, 1, again[0], prompt=(1,) * again[1], epoch=2, committed=committed) is is_kept
    assert len(desk.core.promises.promised) == is_kept


def test_a_promise_ends_with_its_text(desk: Desk) -> None:
    """Else a text after another by the same id would be promised what nobody has decided."""
    ask(desk, 1, max_tokens=2)
    while not desk.session().finished:
        serve(desk)
    desk.core.receive(b"a", make_open(1, epoch=2, slo=QUICK, max_tokens=2), desk.now)
    assert session_id(1) not in desk.core.promises.promised
    assert desk.core.promises.awaits_decision(desk.session())


def test_a_text_that_is_opened_again_and_again_is_decided_again(desk: Desk) -> None:
    ask(desk, 1)
    for epoch in range(2, MAX_RETURNS + 3):
        serve(desk)
        desk.core.receive(b"a", make_open(1, epoch=epoch, slo=QUICK), desk.now)
        assert (session_id(1) in desk.core.promises.promised) is (epoch <= MAX_RETURNS + 1)
        desk.core.admit(desk.now)


def test_a_text_that_is_under_way_is_not_refused_when_it_comes_back(desk: Desk) -> None:
    assert ask(desk, 1, NEVER, committed=(4, 5), otherwise="refuse") is False
    assert desk.core.counts.promises == {}, "it asked when it began"


def test_a_session_that_is_closed_leaves_its_place(desk: Desk) -> None:
    for number in (1, 2, 3):
        assert ask(desk, number) is True
    assert ask(desk, 4) is False
    desk.up("a", Close(session_id(1), 1))
    assert ask(desk, 5) is True


def test_who_was_declined_is_promised_later_if_there_is_room_before_its_first_token_is_due(desk: Desk) -> None:
    patient, hasty = Slo(Objectives(ttft_s=5.0, tpot_s=0.02)), Slo(Objectives(ttft_s=0.05, tpot_s=0.02))
    for number in (1, 2, 3):
        ask(desk, number)
    for number, slo in ((4, patient), (5, hasty)):
        assert ask(desk, number, slo, prompt=[1] * 40) is False
    desk.up("a", Close(session_id(1), 1))
    serve(desk)
    assert (desk.session(4).promised, desk.session(5).promised) == (True, False)
    assert desk.core.counts.promises == {(OTHER, "promised"): 3, (OTHER, "declined"): 2, (OTHER, "later"): 1}
    said: dict[bytes, bool | None] = {}
    while session_id(4) not in said or session_id(5) not in said:
        said |= told(serve(desk))
    assert (said[session_id(4)], said[session_id(5)]) == (True, False)


def test_nobody_keeps_others_from_being_asked_for_again() -> None:
    """Memory is promised to one text; eight of another client can never be kept, and are due first."""
    desk = promising("a", "b", "v")
    slow = Slo(Objectives(9.0, 0.5))
    desk.open("a", 1, max_tokens=180, slo=slow)
    for number in range(10, 18):
        desk.open("b", number, max_tokens=4, slo=Slo(Objectives(8.0, 1e-4)))
    desk.open("v", 50, prompt=[1] * 60, max_tokens=100, slo=slow)
    assert (desk.session(1).promised, desk.session(50).promised) == (True, False)
    desk.up("a", Close(session_id(1), 1))
    serve(desk)
    assert desk.session(50).promised


def test_what_another_asks_for_takes_nobodys_headroom() -> None:
    def tokens_in(seconds: float) -> float:
        return max(0.0, (seconds - 0.02) / 0.001)

    close, never = deadline(b"close", 0.075, 30, 0.2), deadline(b"never", 100.0, 1, 1e-4)
    assert decided({}, [close], tokens_in, least_round_s=0.022) == [False]
    assert decided({}, [close, never], tokens_in, least_round_s=0.022) == [False, False]


def test_who_has_its_first_token_is_not_asked_for_again(desk: Desk) -> None:
    ask(desk, 1, Slo(Objectives(ttft_s=5.0, tpot_s=0.008)))
    assert desk.core.promises._declined
    for _ in range(2):
        serve(desk)
    assert not desk.core.promises._declined


def test_promised_texts_are_on_time_whatever_else_is_asked_for(desk: Desk) -> None:
    """Ten others want as much as can be had; who is promised something has each token in time all the same."""
    for number in range(10, 20):
        ask(desk, number, None, max_tokens=15, prompt=range(1, 12))
    serve(desk)
    numbers = [number for number in range(1, 6) if ask(desk, number) is True]
    assert numbers
    kept = {number: desk.session(number).deadline for number in numbers}
    for _ in range(60):
        serve(desk)
    for one in kept.values():
        assert one.violation(0.0) is None
        assert one.num_tokens == 20
    assert sum(desk.core.counts.broken.values()) == 0


def test_no_more_is_promised_than_memory_holds() -> None:
    desk = promising("a", num_pages=11)
    easy = Slo(Objectives(ttft_s=10.0, tpot_s=1.0))
    assert ask(desk, 1, easy, max_tokens=17) is True, "3 and 17 tokens are five pages of the eight that may be promised"
    assert ask(desk, 2, easy, max_tokens=17) is False
    assert ask(desk, 3, easy, max_tokens=9) is True, "and 3 and 9 the three that are left"


def test_while_its_draft_node_is_away_a_promise_takes_nothing_from_others(desk: Desk) -> None:
    """Its window fills; then it waits, and its time stands still."""
    for number in (1, 2):
        ask(desk, number, max_tokens=100)
    while desk.session(1).num_overdue < WINDOW:
        desk.acknowledge(2)
        finish(desk, desk.plan())
    desk.acknowledge(2)
    planned = desk.plan()
    assert list(fed(planned)) == [2]
    left_s = due(desk)
    desk.finish(planned, 0.01)
    desk.now += 100.0
    desk.acknowledge(1, 2)
    assert desk.core.plan(desk.now) is not None
    assert due(desk) == pytest.approx(left_s)


# -- sessions that come and go -----------------------------------------------------------------------------------------


def test_a_text_that_comes_back_during_a_round_with_fewer_tokens_is_read_again(desk: Desk) -> None:
    ask(desk, 1)
    while len(desk.session(1).tokens) < 9:
        serve(desk)
    planned = desk.plan()
    back = tuple(desk.session(1).tokens[3:5])
    assert ask(desk, 1, Slo(QUICK.objectives, 0.1, 0.05), epoch=2, committed=back) is None
    desk.finish(planned)
    assert desk.session(1).promised is True
    promise = desk.core.promises.promised[session_id(1)]
    assert (promise.num_tokens, promise.prompt_left) == (2, 5)
    for _ in range(40):
        serve(desk)
    assert desk.text(1) == alone(request_of(desk.session(1).opened))


def test_who_is_promised_something_keeps_its_memory_while_it_is_away() -> None:
    """A text with 16 tokens that are not acknowledged waits; an older one needs memory, and must not take that."""
    desk = promising("a", num_pages=12)
    ask(desk, 1, None, prompt=range(1, 4), max_tokens=40)
    assert ask(desk, 2, Slo(Objectives(tpot_s=0.1)), prompt=range(1, 4), max_tokens=25) is True
    for _ in range(80):
        planned = desk.core.plan(desk.now)
        if planned is None:
            break
        assert session_id(2) not in planned.preempted
        finish(desk, planned)
        desk.acknowledge(1)
        if desk.session(1).finished:
            break
    assert desk.session(2).num_overdue >= WINDOW
    assert session_id(2) in desk.core.pool


def test_a_prompt_that_finds_no_memory_keeps_nothing_free_that_others_could_have() -> None:
    """Promises are late, so that best effort has its floor alone. One of two clients cannot use it until pages come."""
    desk = promising("a", "b", "c", num_pages=36)
    for number in (1, 2, 3):
        assert ask(desk, number, Slo(Objectives(ttft_s=0.1, tpot_s=0.02)), max_tokens=24) is True
    assert desk.open("b", 4, max_tokens=12) + desk.open("c", 5, prompt=[1] * 130, max_tokens=8) == []
    for _ in range(40):
        planned = desk.plan()
        assert planned.crowded_out == (session_id(5),)
        desk.finish(planned, 0.1)
        desk.acknowledge()
    assert len(desk.text(4)) >= 5, "an eighth of the rounds"


def test_alone_on_the_node_the_time_of_a_promise_stands_still_too(desk: Desk) -> None:
    ask(desk, 1, max_tokens=100)
    serve_unheard(desk)
    left_s = due(desk)
    desk.now += 3.0
    desk.acknowledge(1)
    assert desk.core.plan(desk.now) is not None
    assert due(desk) == pytest.approx(left_s)


def test_a_promise_ends_when_nobody_is_there_for_long(desk: Desk) -> None:
    """So whoever never acknowledges keeps others from promises for some seconds only."""
    for number in (1, 2, 3):
        assert ask(desk, number, max_tokens=60) is True
    serve_unheard(desk)
    assert ask(desk, 4) is False
    desk.now += GONE_S + 0.1
    assert ask(desk, 5) is True
    assert [desk.session(number).promised for number in (1, 2, 3)] == [False] * 3
    desk.acknowledge(1)
    while session_id(1) not in (said := told(serve(desk))):
        pass
    assert said[session_id(1)] is False, "and its draft node is told"


def test_a_held_prompt_is_held_by_the_round_too(desk: Desk) -> None:
    """A round feeds nothing of a promised prompt to which nothing is allotted."""
    ask(desk, 1, prompt=(1,))
    allotment = Allotment(5, {session_id(1): 0}, (session_id(1),), frozenset({session_id(1)}))
    sessions = list(desk.core.sessions.values())
    assert pack(sessions, desk.core.pool, drafted={}, allotment=allotment).entries == ()


@pytest.mark.parametrize(("salt", "fed_tokens"), [(b"alice", 1), (b"bob", 29)])
def test_the_final_token_of_a_held_prompt_is_held_also_where_more_is_cached_than_was_thought(salt, fed_tokens) -> None:
    prompt = tuple(range(1, 31))  # seven pages are cached
    desk = promising("a", num_pages=100)
    ask(desk, 1, None, prompt=prompt, cache_salt=b"alice")
    serve(desk)
    ask(desk, 2, PATIENT, prompt=prompt, cache_salt=salt)
    key = session_id(2)
    desk.core.admit(desk.now)
    allotted = desk.core.promises.allot(desk.core.sessions, [desk.session(2)], desk.now)
    assert allotted.prefill == {key: fed_tokens + 1}
    allotment = Allotment(100, {key: 29}, (key,), frozenset({key}), held=frozenset({key}))
    [entry] = pack([desk.session(2)], desk.core.pool, drafted={}, allotment=allotment).entries
    assert (entry.samples, len(entry.tokens)) == (False, fed_tokens)


def test_a_text_that_is_opened_again_before_its_first_token_is_one_promise() -> None:
    desk = promising("a")
    for number in range(1, 5):
        ask(desk, number, max_tokens=60)
    for epoch in (2, 3):
        desk.core.admit(desk.now)
        for number in range(1, 5):
            ask(desk, number, max_tokens=60, epoch=epoch)
    desk.core.admit(desk.now)
    assert desk.core.counts.promises == {(OTHER, "promised"): 3, (OTHER, "declined"): 1}


# -- a client's share of promises is bounded while another client asks for some ----------------------------------------


PATIENT = Slo(Objectives(tpot_s=0.1))
"""A round of 100 ms carries 24 tokens, of which 18 are promised."""


@pytest.fixture
def two() -> Desk:
    return promising("a", "b", num_pages=4000)


def ask_all(two: Desk, peer: str, numbers: range, slo: Slo = PATIENT, prompt: int = 2) -> None:
    for number in numbers:
        two.open(peer, number, slo=slo, prompt=(1,) * prompt, max_tokens=100)


def promised(two: Desk, numbers: range) -> int:
    return sum(bool(two.session(number).promised) for number in numbers)


@pytest.mark.parametrize(
    ("weight", "tpot_s", "shares"),
    [(1.0, 0.1, (9, 9)), (2.0, 0.1, (12, 6)), (1.0, 0.001, (18, 0))],
    ids=["equal", "by weight", "one asks for what it can never have"],
)
def test_two_that_ask_at_once_share_by_their_weights_what_both_want(two: Desk, weight, tpot_s, shares) -> None:
    """Both ask during a round, one for 32 and the other for 12."""
    two.core.peers[b"a"].client.weight = weight
    two.open("a", 99, slo=None)
    planned = two.plan()
    ask_all(two, "a", range(32))
    ask_all(two, "b", range(32, 44), Slo(Objectives(tpot_s=tpot_s)))
    finish(two, planned)
    assert (promised(two, range(32)), promised(two, range(32, 44))) == shares


def test_who_came_later_is_promised_first_what_others_leave(two: Desk) -> None:
    """All is promised to one client. When six of its texts end and it asks for six more, the other is first."""
    ask_all(two, "a", range(18))
    ask_all(two, "b", range(32, 38), prompt=80)
    assert (promised(two, range(18)), promised(two, range(32, 38))) == (18, 0)
    planned = two.plan()
    for number in range(6):
        two.up("a", Close(session_id(number), 1))
    ask_all(two, "a", range(18, 24))
    finish(two, planned)
    assert (promised(two, range(18, 24)), promised(two, range(32, 38))) == (0, 1)
