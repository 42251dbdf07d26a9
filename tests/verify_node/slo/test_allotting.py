"""A round owes tokens, and deadlines are promised: by hand, then whole runs without a broken promise."""

from typing import Any

from tests.verify_node.slo.deadlines import HandRounds, deadline, decided, promised, running
from verify_node.slo.allotting import CATCHING_UP, allot


def six(seconds):
    return int(6 * seconds + 1e-9)


def allotted(*deadlines, now=0.0, tokens_in=six):
    rounds: Any = HandRounds(tokens_in)
    return allot(promised(*deadlines), now, rounds)


def test_a_round_of_many_sessions_ends_when_the_first_is_due_that_can_be_in_time():
    own = [running(bytes([number]), at=0.001 * number, tpot_s=1.0) for number in range(200)]
    allotment = allotted(*own, now=0.5, tokens_in=lambda seconds: int(1000 * seconds))
    assert allotment.round_tokens == 500  # the first token after the first ones is due in half a second
    late = allotted(*own, now=0.95, tokens_in=lambda seconds: int(1000 * seconds))
    assert late.round_tokens == 201  # in the 50 ms until the first is due only 50 of 200 could have a token


def four(due):
    return [deadline(bytes([number]), due, 6, 1.0, pages=2) for number in range(4)]


def test_figure_3_decided_with_the_room_of_a_round():
    """As in the paper three of four are promised, with deadlines a round and the headroom later."""
    held = promised(*(running(key) for key in (b"x", b"y", b"z")))
    kept = [True, True, True, False]
    assert decided(held, four(7.01), six) == kept
    assert decided(held, four(7.01), six, policy="edf") == kept
    assert decided(held, four(7.01), six, policy="none") == [False] * 4
    assert sum(decided(held, four(6.0), six)) == 2, "a round less"
    assert sum(decided(held, four(1007.01), six, 1000.0)) == 1, "who is behind takes more"
    assert len(held) == 3


def test_what_was_promised_before_goes_first_and_its_pages_are_not_promised_again():
    new = deadline(b"b", 8.0, 20, None)
    assert decided(promised(deadline(b"a", 9.0, 40, None)), [new], six) == [False]
    assert decided({}, [new], six) == [True]
    held = promised(deadline(b"a", 50.0, 1, None, pages=5))
    assert sum(decided(held, four(50.0), six, pages=9)) == 2
    assert sum(decided(held, four(50.0), six, pages=4)) == 0
    late = promised(deadline(b"late", 1.0, 3))
    assert decided(late, [deadline(b"b", 15.0, 6)], six, 5.0) == [True], "a late prompt stops no other promises"


def test_a_round_is_as_long_as_the_tightest_promise_allows():
    own = running(b"slow", tpot_s=4.0), running(b"quick", tpot_s=2.0)
    found = allotted(*own)
    assert found.round_tokens == 12
    assert found.rank == (b"quick", b"slow")
    assert allotted(*own, now=0.5).round_tokens == 9, "the next token is due in 1.5 s"


def test_who_is_behind_catches_up_and_does_not_shorten_rounds_to_nothing():
    quick, slow = running(b"quick", tpot_s=2.0), running(b"slow", tpot_s=4.0)
    assert allotted(quick, slow, now=2.5).round_tokens == six(1.5), "slow is due in 1.5 s"
    slow.delivered(9, 2.5)
    assert allotted(quick, slow, now=2.5).round_tokens == six(2.0 * CATCHING_UP)
    assert allotted(quick, slow, now=1.99).round_tokens == 12, "10 ms are no round: it is late already"


def test_promised_prompts_are_read_by_their_deadlines_and_best_effort_has_the_rest():
    found = allotted(running(b"x"), deadline(b"b", 9.0, 7, None), deadline(b"a", 8.0, 3, None))
    assert found.prefill == {b"a": 3, b"b": 2}
    assert found.rank == (b"x", b"a", b"b")
    assert allotted(deadline(b"a", 8.0, 3, None)).prefill == {b"a": 3}


def test_the_last_prompt_token_is_held_until_decoding_can_be_afforded_unless_it_is_due_soon():
    """Four of six tokens are decoded. Another two are needed for the second prompt, which leaves none for the first."""
    first, second = deadline(b"first", 9.0, 2, 1.0), deadline(b"second", 10.0, 16, None)

    def prefilled(*prompts, at=0.0):
        return allotted(*(running(key, at=at) for key in (b"w", b"x", b"y", b"z")), *prompts, now=at).prefill

    assert prefilled(first) == {b"first": 2}, "nobody else needs what is left"
    assert prefilled(first, second) == {b"first": 1, b"second": 1}
    assert prefilled(first, second, at=7.0)[b"first"] == 2


def test_what_is_late_takes_nothing_from_who_is_on_time():
    """A prompt of many rounds that is late is read with what is left, after a token of each, and prompts in time."""
    own = running(b"x", at=4.5), running(b"y", at=4.6), deadline(b"late", 1.0, 600), deadline(b"soon", 9.0, 3, None)
    found = allotted(*own, now=5.0, tokens_in=lambda seconds: int(20 * seconds))
    assert found.rank == (b"x", b"y", b"soon", b"late")
    assert found.round_tokens is not None
    assert found.prefill == {b"soon": 3, b"late": found.round_tokens - 2 - 3}


def test_paused_sessions_take_no_part_and_keep_their_memory():
    away, there = running(b"x"), running(b"y")
    away.pause(0.5)
    found = allotted(away, there, now=10.0)
    assert (found.rank, found.reserved) == ((b"y",), frozenset({b"x", b"y"}))
