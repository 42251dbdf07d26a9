"""Sessions go to the right replica: by hand, then as laws; and a summary decides as its replica does."""

from collections import defaultdict
from math import inf
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import Linear
from goodspeed.fleet.replicas import MAX_OWED, MAX_PACES, Load, Owed, Pace, Replica
from goodspeed.fleet.routing import MARGIN, STALE_S, elsewhere, expected_s, fits, may_take, with_one_more
from goodspeed.slo.capacity import Capacity
from goodspeed.slo.feasible import Ask
from tests.verify_node.slo.deadlines import deadline, promised, running
from verify_node.core.fleet import summary
from verify_node.slo.allotting import CATCHING_UP
from verify_node.slo.promises import Decision, decide

NOW = 1000.0
ASK = Ask(0.5, 500, 0.1, 40)
ROOM: dict[str, Any] = {"max_sessions": 100, "num_pages": 1000, "free_pages": 1000, "promisable_pages": 750}
IDLE = Load(NOW, max_round_tokens=2048, fixed_s=0.02, token_s=7e-5, promises=True, **ROOM)


def replica(name, load=IDLE):
    return Replica(name, f"tcp://{name}:5555", None, load)


def busy(number, **changes):
    return replace(IDLE, num_sessions=number, **changes)


def test_an_idle_replica_promises_and_one_without_time_memory_or_promises_does_not():
    assert fits(IDLE, ASK, NOW)
    assert not fits(replace(IDLE, promises=False), ASK, NOW)
    assert not fits(replace(IDLE, promisable_pages=39), ASK, NOW)
    assert not fits(replace(IDLE, paces=(Pace(0.1, 1200),)), ASK, NOW), "1,143 tokens fit into 0.1 s"
    assert not fits(replace(IDLE, owed=(Owed(0.4, 5000, 0.1),)), ASK, NOW)
    assert not fits(IDLE, ASK._replace(deadline_s=0.02), NOW), "no round ends so soon"
    assert fits(IDLE, ASK._replace(deadline_s=inf, tpot_s=None), NOW)
    tight = ASK._replace(prompt_tokens=4000, deadline_s=0.5)
    assert fits(IDLE, tight, NOW)
    assert not fits(replace(IDLE, usual_error=0.2), tight, NOW), "rounds are planned longer by a multiple of it"


def test_what_fell_due_since_it_was_told_decodes_and_the_rest_is_due_sooner():
    """1,000 tokens due in 0.5 s, told 0.6 s ago, are read by now; due in 1.2 s, they still are to be read."""
    ask = ASK._replace(prompt_tokens=4000)
    assert fits(replace(IDLE, owed=(Owed(0.5, 4000, 0.1),)), ask, NOW + 0.6)
    assert not fits(replace(IDLE, owed=(Owed(1.0, 4000, 0.1),)), ask, NOW + 0.6)
    assert not fits(replace(IDLE, paces=(Pace(0.1, 1000),), owed=(Owed(0.5, 1, 1e-3),)), ASK, NOW + 0.6)


def test_a_replica_without_a_model_of_its_rounds_fits_and_a_tpot_of_nothing_is_no_rate():
    assert fits(replace(IDLE, fixed_s=0.0, token_s=0.0), ASK, NOW)
    assert fits(replace(IDLE, owed=(Owed(0.5, 1, 0.0),)), ASK, NOW)


def test_what_is_waited_for_is_a_round_and_the_share_of_taken_places_of_another():
    assert expected_s(busy(49)) == pytest.approx((0.02 + 50 * 7e-5) * 1.5)
    assert expected_s(busy(49, round_s=0.1)) == pytest.approx(0.15)


def test_a_session_that_cannot_be_promised_goes_to_the_least_loaded_that_fits_and_of_equals_to_the_next_by_name():
    others = [replica("b", busy(20)), replica("c", busy(10)), replica("d", replace(IDLE, promisable_pages=0))]
    assert elsewhere(replica("a"), others, ASK, NOW, reason="slo").name == "c"
    assert elsewhere(replica("a"), others[2:], ASK, NOW, reason="slo") is None
    everybody = [replica(name) for name in "abcd"]
    assert [elsewhere(one, everybody, ASK, NOW, reason="slo").name for one in everybody] == ["b", "c", "d", "a"]


def test_a_session_that_could_stay_goes_only_if_it_gains_clearly():
    assert elsewhere(replica("a", busy(90)), [replica("b")], ASK, NOW, reason="load").name == "b"
    assert elsewhere(replica("a", busy(10)), [replica("b")], ASK, NOW, reason="load") is None
    assert elsewhere(replica("a", None), [replica("b")], ASK, NOW, reason="load") is None
    crowded = [replace(IDLE, num_sessions=number, session_s=0.004, round_s=0.0) for number in (9, 5)]
    here, there = replica("a", crowded[0]), replica("b", crowded[1])
    assert 1.25 < expected_s(crowded[0], 0) / expected_s(crowded[1]) < 1.4
    assert elsewhere(here, [there], ASK, NOW, reason="load").name == "b"


def test_who_drains_sends_to_the_least_loaded_and_last_to_those_who_are_not_known():
    full = replace(IDLE, free_pages=0)
    old = replace(IDLE, told_at=NOW - STALE_S - 1)
    others = [replica("b", None), replica("c", old), replica("d", replace(full, num_sessions=5))]
    assert elsewhere(replica("a"), others, ASK, NOW, reason="draining").name == "d"
    assert elsewhere(replica("a"), others[:2], ASK, NOW, reason="draining").name == "b"
    assert elsewhere(replica("a"), others[:2], ASK, NOW, reason="slo") is None
    assert elsewhere(replica("a"), others[:2], ASK, NOW, reason="load") is None
    assert elsewhere(replica("a"), [], ASK, NOW, reason="draining") is None


def test_who_may_take_a_session():
    mine = replace(IDLE, target_fingerprint="f")
    assert may_take(replica("a", mine), NOW, "f")
    assert may_take(replica("a"), NOW)
    assert may_take(replica("a", None), NOW, "f")
    assert not may_take(replica("a"), NOW, "f"), "it has not said which target it has"
    assert not may_take(replica("a", replace(mine, is_draining=True)), NOW, "f")
    assert not may_take(replica("a", replace(mine, num_sessions=100)), NOW, "f")
    assert may_take(replica("a", replace(mine, num_sessions=100)), NOW + STALE_S + 1, "f")
    assert not may_take(replica("a", replace(mine, is_draining=True)), NOW + STALE_S + 1, "f")


def test_what_was_sent_counts_before_the_replica_tells_again():
    load, number = IDLE, 0
    while fits(load, ASK, NOW + 0.1):
        load, number = with_one_more(load, ASK, NOW + 0.1), number + 1
    assert 5 < number < 20, "some 6,000 tokens are read in half a second"
    assert (load.num_sessions, load.free_pages) == (number, 1000 - 40 * number)
    assert load.promisable_pages == 750 - 40 * number
    assert load.owed[0] == Owed(NOW + 0.1 - NOW + 0.5, 500, 0.1, 40)


rates = st.sampled_from([None, 0.05, 0.1, 0.2])
due = st.just(inf) | st.floats(0.0, 3.0)
asks = st.tuples(due, st.integers(0, 3000), rates, st.integers(0, 300)).map(lambda values: Ask(*values))
targets = st.sampled_from(["", "f", "g"])
paces = st.builds(Pace, st.sampled_from([0.05, 0.1, 0.2]), st.integers(0, 40))
owed_ones = st.builds(Owed, st.floats(-1.0, 3.0), st.integers(0, 2000), rates, st.integers(0, 100))
COSTS: dict[str, list[Any]] = {"fixed_s": [0.0, 0.02], "token_s": [0.0, 7e-5], "session_s": [0.0, 1e-4, 1e-2]}
COSTS |= {"context_s": [0.0, 1e-7, 1e-5], "round_s": [0.0, 0.03, 0.3], "max_round_tokens": [1, 64, 2048]}
loads = st.builds(
    Load,
    told_at=st.floats(NOW - 20.0, NOW),
    target_fingerprint=targets,
    is_draining=st.booleans(),
    num_sessions=st.integers(0, 60),
    max_sessions=st.integers(1, 60),
    num_pages=st.just(1000),
    promisable_pages=st.integers(0, 1000),
    context_tokens=st.integers(0, 40_000),
    usual_error=st.floats(0.0, 0.5),
    promises=st.booleans(),
    paces=st.lists(paces, max_size=3).map(tuple),
    owed=st.lists(owed_ones, max_size=4).map(tuple),
    **{name: st.sampled_from(values) for name, values in COSTS.items()},
)
replicas = st.lists(st.none() | loads, min_size=1, max_size=6).map(
    lambda found: [replica(f"r{number}", load) for number, load in enumerate(found)]
)


@given(replicas, asks, targets, st.sampled_from(["slo", "load", "draining"]))
def test_nobody_is_chosen_who_may_not_take_it(found, ask, target, reason):
    chosen = elsewhere(found[0], found, ask, NOW, reason=reason, target=target)
    if chosen is None:
        able = [one for one in found[1:] if may_take(one, NOW, target)]
        assert not able or reason != "draining"
        return
    assert chosen in found[1:]
    assert chosen.load is None or not chosen.load.is_draining
    if chosen.load is not None and target:
        assert chosen.load.target_fingerprint == target
    if chosen.load is not None and NOW - chosen.load.told_at <= STALE_S:
        assert chosen.load.num_sessions < chosen.load.max_sessions
        assert reason != "slo" or fits(chosen.load, ask, NOW)


@pytest.mark.thorough
@given(loads, loads, asks, st.booleans(), st.booleans())
def test_two_replicas_never_send_a_session_to_and_fro(here, there, ask, was_counted, is_counted):
    here, there = replace(here, told_at=NOW), replace(there, told_at=NOW)
    there = replace(there, is_draining=False, fixed_s=min(here.fixed_s, there.fixed_s))
    if elsewhere(replica("a", here), [replica("b", there)], ask, NOW, reason="load") is None:
        return
    assert MARGIN * expected_s(there) < expected_s(here)
    after_here, after_there = counted(here, ask, -was_counted), counted(there, ask, is_counted)
    assert elsewhere(replica("b", after_there), [replica("a", after_here)], ask, NOW, reason="load") is None


def counted(load, ask, number):
    context = max(0, load.context_tokens + number * ask.prompt_tokens)
    return replace(load, num_sessions=max(0, load.num_sessions + number), context_tokens=context)


@given(loads, asks, st.integers(0, 5), st.integers(0, 500))
def test_more_to_do_is_never_less_to_wait(load, ask, sessions, context):
    more = replace(load, num_sessions=load.num_sessions + sessions, context_tokens=load.context_tokens + context)
    assert expected_s(more) >= expected_s(load)


@given(loads, asks, st.integers(1, 500), st.integers(1, 5))
def test_who_owes_more_promises_no_more(load, ask, tokens, sessions):
    if fits(load, ask, NOW):
        return
    assert not fits(replace(load, promisable_pages=max(0, load.promisable_pages - tokens)), ask, NOW)
    more = tuple(replace(one, prompt_tokens=one.prompt_tokens + tokens) for one in load.owed)
    assert not fits(replace(load, owed=more), ask, NOW)
    more = tuple(replace(one, num_sessions=one.num_sessions + sessions) for one in load.paces if one.num_sessions)
    assume(load.num_sessions >= 200 or not load.context_s)  # else the same texts are of fewer who are promised nothing
    assert not fits(replace(load, paces=more or load.paces), ask, NOW)


keys, dues = st.binary(min_size=4, max_size=4), st.floats(NOW - 1.0, NOW + 3.0)
deadlines = st.builds(deadline, keys, dues, st.integers(2, 3000), rates, st.integers(0, 100))


@st.composite
def promises(draw):
    """Some prompts that are not read, and some sessions that decode."""
    found = draw(st.lists(deadlines, max_size=12, unique_by=lambda one: one.session_id))
    for one in found:
        if draw(st.booleans()):
            one.delivered(draw(st.integers(21, 40)), max(NOW - 1.0, one.due - 3.0))
            one.set_prompt(1)
    return promised(*found)


@given(promises(), asks, st.floats(0.0, 0.3), st.sampled_from([0.0, 1e-7]), st.integers(0, 20_000))
def test_a_summary_decides_as_the_replica_does(held, ask, error, context_s, context):
    """One more request, with every open session promised, and none behind."""
    assume(not any(one.is_decoding and (one.due <= NOW or one.slo.tpot_s is None) for one in held.values()))
    cost = Refined(Linear(0.02, 7e-5, 1e-5, context_s))
    cost.usual_error = error
    rounds = Capacity(cost, cost.usual_error, 2048, len(held) + 1, (context if held else 0) + ask.prompt_tokens)
    new = deadline(b"new", NOW + min(ask.deadline_s, 10.0), ask.prompt_tokens, ask.tpot_s, ask.pages)
    (is_kept,) = decide(held, [new], Decision(NOW, rounds, 1000, defaultdict(lambda: 1.0)))
    paces, owed = summary(held.values(), NOW)
    pages = max(0, 750 - sum(one.pages for one in held.values()))
    load = replace(IDLE, num_sessions=len(held), promisable_pages=pages, context_tokens=context, session_s=1e-5)
    assert fits(replace(load, context_s=context_s, usual_error=error, paces=paces, owed=owed), ask, NOW) == is_kept


def test_a_summary_by_hand():
    own = [running(key, 1.0, tpot_s=tpot_s) for key, tpot_s in ((b"a", 0.1), (b"b", 0.1), (b"c", 0.2), (b"d", None))]
    held = running(b"e", 1.0, tpot_s=0.1)
    held.prompt_left = 1
    own += [held, deadline(b"f", 3.0, 7, 0.2, 5), deadline(b"g", 2.5, 2, None, 6)]
    paces, owed = summary(own, 1.0625)
    assert paces == (Pace(0.1, 3), Pace(0.2, 1))
    assert owed == (Owed(1.4375, 2, None, 6), Owed(1.9375, 7, 0.2, 5))
    assert summary(own, 1.15)[0] == (Pace(0.1 * CATCHING_UP, 3), Pace(0.2, 1)), "who is behind catches up"


def test_a_summary_tells_the_tightest_and_times_beyond_what_can_be_told_as_the_longest():
    own = [deadline(n.to_bytes(2, "big"), 1000.0 - n, 0 if n % 2 else 10, 0.1 + 0.001 * n) for n in range(600)]
    paces, owed = summary(own, 0.0)
    assert [one.deadline_s for one in owed] == [402.0 + 2 * number for number in range(MAX_OWED)]
    assert (len(paces), paces[0].num_sessions, paces[-1].num_sessions) == (MAX_PACES, 1, 300 - MAX_PACES + 1)
    assert summary([deadline(b"a", inf, 10, None)], 0.0)[1][0].deadline_s == 1e6
