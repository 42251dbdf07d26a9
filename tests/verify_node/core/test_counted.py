"""Promises that count on drafts: on whose, how much more is promised, and that the default counts on none."""

from types import SimpleNamespace
from typing import Any

import pytest

from goodspeed.fair.latency import Linear
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Slo
from tests.fakes import Desk, session_id
from verify_node.admission import Book, Request, allot, decide
from verify_node.core.counted import COUNTED, counted_on

COST = Linear(fixed_s=0.02, token_s=0.001)


def tokens_in(seconds: float) -> float:
    return max(0.0, (seconds - 0.02) / 0.001)


def session(number: int, *, shown: float = 0.9, most: float = 1.0, tried: float = 50.0, trip_s: float = 0.0) -> Any:
    bound = SimpleNamespace(most=most, num_tried=tried)
    client = SimpleNamespace(acceptance=SimpleNamespace(value=shown), acceptance_bound=bound, draft_s_per_token=0.001)
    ledger = SimpleNamespace(slo=Objectives(ttft_s=1.0, tpot_s=0.05))
    return SimpleNamespace(session_id=session_id(number), client=client, ledger=ledger, round_trip_s=trip_s)


def test_drafts_that_were_shown_make_rounds_longer() -> None:
    [pace] = counted_on([session(1)], tokens_in).values()
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
    assert counted_on([session(1, **changes)], tokens_in) == {}
    assert counted_on([session(1, **changes), session(2)], tokens_in) == {}, "its TPOT bounds the round"


def test_more_is_promised_where_drafts_are_counted_on() -> None:
    requests = [Request(session_id(number), 1.0, 20, 0.05) for number in range(40)]
    paces = counted_on([session(number) for number in range(40)], tokens_in)
    plain = decide(Book(), requests, 0.0, tokens_in=tokens_in)
    more = decide(Book(), requests, 0.0, tokens_in=tokens_in, counted_on=paces)
    assert more.count("promised") > plain.count("promised") > 0


def test_a_round_leaves_room_for_the_drafts_that_are_counted_on() -> None:
    book = Book()
    book.promise(Request(b"runs", 0.0, 1, 0.05))
    book.read(b"runs", 1)
    book.delivered(b"runs", 1, 0.0)
    book.promise(Request(b"reads", 0.5, 500, None))
    [pace] = counted_on([session(1)], tokens_in).values()
    plain = allot(book, 0.0, tokens_in=tokens_in)
    counted = allot(book, 0.0, tokens_in=tokens_in, counted_on={b"runs": pace})
    assert plain.round_tokens == int(tokens_in(0.05))
    assert counted.round_tokens == int(tokens_in(pace.round_s))
    assert counted.prefill[b"reads"] == counted.round_tokens - 1 - pace.drafted


def test_the_default_counts_on_none() -> None:
    desk = Desk(selection="odds", self_draft=False, policy="slo", admission="dp", cost=COST)
    assert desk.core.promises.guarantee == "plain"
    desk.hello(capabilities=("odds", "offers", "slo", "no_model", "admission"))
    desk.open(number=1, slo=Slo(Objectives(ttft_s=1.0, tpot_s=0.05)))
    assert desk.session().promised
