"""Promises that count on drafts: on whose, how much more is promised, and that the default counts on none."""

from types import SimpleNamespace
from typing import Any

import pytest

from goodspeed.fair.latency import Linear, Refined
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Slo
from tests.fakes import Desk, session_id
from verify_node.admission import Book, Request, allot, decide
from verify_node.core.core import _room
from verify_node.promises.capacity import Capacity
from verify_node.promises.counted import COUNTED, MAX_KINDS, Kind, _fewer, _kind, counted_on

COST = Linear(fixed_s=0.02, token_s=0.001)


def tokens_in(seconds: float) -> float:
    return max(0.0, (seconds - 0.02) / 0.001)


def session(
    number: int,
    *,
    tpot_s: float = 0.05,
    shown: float = 0.9,
    most: float = 1.0,
    tried: float = 50.0,
    trip_s: float = 0.0,
) -> Any:
    bound = SimpleNamespace(most=most, num_tried=tried)
    client = SimpleNamespace(acceptance=SimpleNamespace(value=shown), acceptance_bound=bound, draft_s_per_token=0.001)
    ledger = SimpleNamespace(slo=Objectives(ttft_s=1.0, tpot_s=tpot_s))
    return SimpleNamespace(session_id=session_id(number), client=client, ledger=ledger, round_trip_s=trip_s)


def test_drafts_that_were_shown_make_rounds_longer() -> None:
    [pace] = counted_on([session(1)], tokens_in, 24).values()
    assert pace.drafted >= 1
    assert pace.round_s > 0.05
    alpha = 0.7  # COUNTED of 0.9, rounded to the slower side
    assert alpha <= COUNTED * 0.9
    kept_s = 0.05 * sum(alpha**place for place in range(pace.drafted + 1))
    assert pace.round_s <= kept_s * (1 + 1e-9), "the expected tokens keep the TPOT"
    assert pace.load == pytest.approx((1 + pace.drafted) / pace.round_s)


@pytest.mark.parametrize("changes", [{"tried": 0.0}, {"shown": 0.0}, {"most": 0.05}, {"trip_s": 9.0}])
def test_who_has_shown_none_or_is_too_far_is_not_counted_on_nor_are_others_then(
    changes: dict[str, Any],
) -> None:
    assert counted_on([session(1, **changes)], tokens_in, 24) == {}
    assert counted_on([session(1, **changes), session(2)], tokens_in, 24) == {}, "its TPOT bounds the round"


def test_more_is_promised_where_drafts_are_counted_on() -> None:
    """A round takes 40 ms and 0.2 ms a token, so longer ones carry far more."""

    def carried(seconds: float) -> float:
        return max(0.0, (seconds - 0.04) / 0.0002)

    requests = [Request(session_id(number), 1.0, 20, 0.05) for number in range(120)]
    paces = counted_on([session(number) for number in range(120)], carried, 1_000)
    plain = decide(Book(), requests, 0.0, tokens_in=carried)
    more = decide(Book(), requests, 0.0, tokens_in=carried, counted_on=paces)
    assert more.count("promised") > 1.5 * plain.count("promised") > 0


def decoding(number: int) -> Book:
    """So many promised sessions, each with its first token since 0 s."""
    book = Book()
    for each in range(number):
        book.promise(Request(session_id(each), 0.0, 1, 0.05))
        book.read(session_id(each), 1)
        book.delivered(session_id(each), 1, 0.0)
    return book


def test_a_round_leaves_room_for_the_drafts_that_are_counted_on() -> None:
    book = decoding(1)
    book.promise(Request(b"reads", 0.5, 500, None))
    paces = counted_on([session(0)], tokens_in, 24)
    [pace] = paces.values()
    plain = allot(book, 0.0, tokens_in=tokens_in)
    counted = allot(book, 0.0, tokens_in=tokens_in, counted_on=paces)
    assert plain.round_tokens == int(tokens_in(0.05))
    assert counted.round_tokens is not None
    assert counted.round_tokens == int(tokens_in(pace.round_s))
    assert counted.prefill[b"reads"] == counted.round_tokens - 1 - pace.drafted


@pytest.mark.parametrize("num_others", [0, 40, 400])
def test_best_effort_does_not_take_the_drafts_that_are_counted_on(num_others: int) -> None:
    book, rounds = decoding(6), Capacity(Refined(COST), 512, 6, 600)
    paces = counted_on([session(number) for number in range(6)], rounds.tokens_in, 24)
    allotment = allot(
        book,
        0.0,
        tokens_in=rounds.tokens_in,
        counted_on=paces,
        beside=lambda seconds, tokens: rounds.beside(seconds, tokens, [100] * num_others),
    )
    needed = sum(pace.drafted for pace in paces.values())
    assert 0 < needed == allotment.drafted
    assert (_room(allotment, 6 + num_others) or 0) >= needed
    assert allotment.round_tokens is not None
    assert allotment.round_tokens >= 6 + needed


def test_no_more_is_counted_on_than_a_round_may_draft() -> None:
    sessions = [session(number) for number in range(112)]
    for budget in (0, 24, 111):
        assert counted_on(sessions, tokens_in, budget) == {}, "less than one token for each"
    paces = counted_on(sessions, lambda seconds: 10 * tokens_in(seconds), 400)
    assert 112 <= sum(pace.drafted for pace in paces.values()) <= 400


def test_one_late_text_does_not_make_all_others_late() -> None:
    """Their rounds stay as long as their drafts make up for: shorter ones have no room for all."""
    book = decoding(2)
    paces = counted_on([session(number) for number in range(2)], tokens_in, 24)
    [longest_s, _] = [pace.round_s for pace in paces.values()]
    book.delivered(session_id(1), 40, 0.0)
    now = longest_s - 0.005  # the first one is due in 5 ms, in which no round ends
    allotment = allot(book, now, tokens_in=tokens_in, counted_on=paces)
    assert allotment.round_tokens == int(tokens_in(longest_s)) > int(tokens_in(0.05))


def test_many_kinds_of_sessions_are_taken_together() -> None:
    sessions = [session(number, tpot_s=0.05 + number / 1e4, trip_s=number / 1e4) for number in range(300)]
    kinds: dict[Kind, list[bytes]] = {}
    for one in sessions:
        kinds.setdefault(_kind(one, one.ledger.slo.tpot_s), []).append(one.session_id)
    fewer = _fewer(kinds)
    assert len(fewer) <= MAX_KINDS < 300
    assert sum(map(len, fewer.values())) == 300


def test_the_default_counts_on_none() -> None:
    desk = Desk(self_draft=False, admission="dp", cost=COST)
    assert desk.core.promises.guarantee == "plain"
    desk.hello(draft_model="")
    desk.open(number=1, slo=Slo(Objectives(ttft_s=1.0, tpot_s=0.05)))
    assert desk.session().promised
