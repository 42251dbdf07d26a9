"""The book of promises: what is due, who is promised, what a round owes; then whole runs without a broken promise."""

import random
from dataclasses import asdict
from math import inf

import pytest

from goodspeed.fair.latency import Linear, Roofline
from tests.verify_node.admission.serving import Serving, arrivals, serve
from verify_node.admission import Book, Request, allot, decide
from verify_node.admission.owing import CATCHING_UP

MODEL = Roofline((Linear(fixed_s=0.0248), Linear(fixed_s=0.003, token_s=7.5e-5)))


def six(seconds):
    return int(6 * seconds + 1e-9)


def booked(*requests, read=(), delivered=()):
    """A book of these promises; read, delivered: of some, the tokens and for the latter when the first came."""
    book = Book()
    for request in requests:
        book.promise(request)
    for key, number in read:
        book.read(key, number)
    for key, number, at in delivered:
        book.delivered(key, 1, at)
        book.delivered(key, number - 1, at)
    return book


def running(key, at=0.0, number=1, tpot_s=1.0):
    """A promised session that decodes since a time and has had so many tokens."""
    return booked_request(key, at, tpot_s), (key, 1), (key, number, at)


def booked_request(key, deadline, tpot_s=1.0, prompt=1):
    return Request(key, deadline, prompt, tpot_s)


def decoding(*sessions, waiting=()):
    requests, read, delivered = zip(*sessions, strict=True)
    return booked(*requests, *waiting, read=read, delivered=delivered)


def test_tokens_are_due_from_the_first_one_on_or_from_its_deadline_if_that_was_late():
    book = booked(Request(b"a", 10.0, 5, 0.5))
    assert book[b"a"].due == 10.0
    book.read(b"a", 5)
    assert book[b"a"].is_decoding
    book.delivered(b"a", 1, 9.0)
    assert book[b"a"].due == 9.5
    book.delivered(b"a", 3, 9.1)
    assert book[b"a"].due == 11.0
    late = booked(Request(b"a", 10.0, 1, 0.5), read=[(b"a", 1)], delivered=[(b"a", 1, 12.0)])
    assert late[b"a"].due == 10.5
    assert booked(Request(b"a", 10.0, 1, None), delivered=[(b"a", 1, 9.0)])[b"a"].due == inf


def test_the_book_keeps_promises_only_and_forgets_what_is_over():
    book = booked(Request(b"a", 10.0, 5, 0.5, pages=3), Request(b"b", 9.0, 5, None, pages=4))
    assert (len(book), book.pages, b"a" in book) == (2, 7, True)
    book.read(b"stranger", 3)
    book.delivered(b"stranger", 3, 1.0)
    book.forget(b"stranger")
    book.read(b"a", 99)
    assert book[b"a"].prompt_left == 0
    book.read_again(b"a", 7)
    assert asdict(book[b"a"])["prompt_left"] == 7
    book.forget(b"a")
    assert [one.session_id for one in book] == [b"b"]


def test_many_sessions_take_few_looks_at_what_rounds_carry():
    """How long a round may be is searched for among what all of them are owed, which each look takes time for."""
    book = decoding(*(running(bytes([number]), at=0.001 * number, tpot_s=1.0) for number in range(200)))
    looks = []

    def tokens_in(seconds):
        looks.append(seconds)
        return int(1000 * seconds)

    allotment = allot(book, 0.5, tokens_in=tokens_in)
    assert len(looks) < 20
    assert allotment.round_tokens == 500  # the first token after the first ones is due in half a second
    late = allot(book, 0.95, tokens_in=lambda seconds: int(1000 * seconds))
    assert late.round_tokens == 201  # in the 50 ms until the first is due only 50 of 200 could have a token


def four(deadline):
    return [Request(bytes([number]), deadline, 6, 1.0, pages=2) for number in range(4)]


def test_figure_3_decided_with_the_room_of_a_round():
    """As in the paper three of four are promised, with deadlines a round and the headroom later."""
    book = decoding(*(running(key) for key in (b"x", b"y", b"z")))
    kept = ["promised"] * 3 + ["best_effort"]
    assert decide(book, four(7.01), 0.0, tokens_in=six) == kept
    assert decide(book, four(7.01), 0.0, tokens_in=six, policy="edf") == kept
    assert decide(book, four(7.01), 0.0, tokens_in=six, policy="none") == ["best_effort"] * 4
    assert decide(book, four(6.0), 0.0, tokens_in=six).count("promised") == 2, "a round less"
    assert decide(book, four(1007.01), 1000.0, tokens_in=six).count("promised") == 1, "who is behind takes more"
    assert len(book) == 3


def test_reserved_pages_are_not_promised_again():
    book = booked(Request(b"a", 50.0, 1, None, pages=5))
    assert decide(book, four(50.0), 0.0, tokens_in=six, pool_pages=9).count("promised") == 2
    assert decide(book, four(50.0), 0.0, tokens_in=six, pool_pages=4).count("promised") == 0


def test_what_was_promised_before_goes_first():
    book = booked(Request(b"a", 9.0, 40, None))
    assert decide(book, [Request(b"b", 8.0, 20, None)], 0.0, tokens_in=six) == ["best_effort"]
    assert decide(Book(), [Request(b"b", 8.0, 20, None)], 0.0, tokens_in=six) == ["promised"]


def test_without_promises_nothing_bounds_a_round():
    assert allot(Book(), 0.0, tokens_in=six) == (None, {}, (), frozenset(), 0, {})


def test_a_round_is_as_long_as_the_tightest_promise_allows():
    book = decoding(running(b"slow", tpot_s=4.0), running(b"quick", tpot_s=2.0))
    found = allot(book, 0.0, tokens_in=six)
    assert found.round_tokens == 12
    assert found.rank == (b"quick", b"slow")
    assert allot(book, 0.5, tokens_in=six).round_tokens == 9, "the next token is due in 1.5 s"


def test_who_is_behind_catches_up_and_does_not_shorten_rounds_to_nothing():
    book = decoding(running(b"quick", tpot_s=2.0), running(b"slow", tpot_s=4.0))
    assert allot(book, 2.5, tokens_in=six).round_tokens == six(1.5), "slow is due in 1.5 s"
    book.delivered(b"slow", 9, 2.5)
    assert allot(book, 2.5, tokens_in=six).round_tokens == six(2.0 * CATCHING_UP)
    assert allot(book, 1.99, tokens_in=six).round_tokens == 12, "10 ms are no round: it is late already"


def test_promised_prompts_are_read_by_their_deadlines_and_best_effort_has_the_rest():
    book = decoding(running(b"x", tpot_s=1.0), waiting=[Request(b"b", 9.0, 7, None), Request(b"a", 8.0, 3, None)])
    found = allot(book, 0.0, tokens_in=six)
    assert found.prefill == {b"a": 3, b"b": 2}
    assert found.rank == (b"x", b"a", b"b")
    assert allot(booked(Request(b"a", 8.0, 3, None)), 0.0, tokens_in=six).prefill == {b"a": 3}


def test_the_last_prompt_token_is_held_until_decoding_can_be_afforded():
    """Four of six tokens are decoded. Another two are needed for the second prompt, which leaves none for the first."""
    busy = [running(key) for key in (b"w", b"x", b"y", b"z")]
    first = Request(b"first", 9.0, 2, 1.0)
    alone = decoding(*busy, waiting=[first])
    assert allot(alone, 0.0, tokens_in=six).prefill == {b"first": 2}, "nobody else needs what is left"
    both = decoding(*busy, waiting=[first, Request(b"second", 10.0, 16, None)])
    assert allot(both, 0.0, tokens_in=six).prefill == {b"first": 1, b"second": 1}


def test_a_last_token_that_is_due_soon_is_not_held():
    busy = [running(key, at=7.0) for key in (b"w", b"x", b"y", b"z")]
    waiting = [Request(b"first", 9.0, 2, 1.0), Request(b"second", 10.0, 16, None)]
    assert allot(decoding(*busy, waiting=waiting), 7.0, tokens_in=six).prefill[b"first"] == 2


def test_what_is_late_takes_nothing_from_who_is_on_time():
    """A prompt of many rounds that is late is read with what is left, after a token of each, and prompts in time."""
    late, soon = Request(b"late", 1.0, 600, 1.0), Request(b"soon", 9.0, 3, None)
    book = decoding(running(b"x", at=4.5), running(b"y", at=4.6), waiting=[late, soon])
    found = allot(book, 5.0, tokens_in=lambda seconds: int(20 * seconds))
    assert found.rank == (b"x", b"y", b"soon", b"late")
    assert found.round_tokens is not None
    assert found.prefill == {b"soon": 3, b"late": found.round_tokens - 2 - 3}


def test_one_late_prompt_does_not_stop_all_other_promises():
    book = booked(Request(b"late", 1.0, 3, 1.0))
    assert decide(book, [Request(b"b", 15.0, 6, 1.0)], 5.0, tokens_in=six) == ["promised"]


def test_absent_sessions_take_no_part_and_keep_their_memory():
    book = decoding(running(b"x"), running(b"y"))
    book.absent(b"x", 0.5)
    found = allot(book, 10.0, tokens_in=six)
    assert (found.rank, found.reserved) == ((b"y",), frozenset({b"x", b"y"}))
    left_s = book[b"x"].due - 0.5
    book.present(b"x", 20.0)
    assert book[b"x"].due - 20.0 == left_s


def test_a_held_token_is_named_with_nothing():
    busy = [running(key) for key in (b"w", b"x", b"y", b"z")]
    waiting = [Request(b"first", 9.0, 1, 1.0), Request(b"second", 10.0, 16, None)]
    assert allot(decoding(*busy, waiting=waiting), 0.0, tokens_in=six).prefill == {b"first": 0, b"second": 2}


@pytest.mark.parametrize("policy", ["dp", "edf"])
@pytest.mark.parametrize("tiers", [(0.05, 0.1), (0.037, 0.061, 0.093), (0.05, 0.2, None), (0.1,)])
@pytest.mark.parametrize("per_s", [4, 25])
def test_no_promise_is_broken_whatever_comes(policy, tiers, per_s):
    """Not by the book, and not by the clock of who reads: the first token is in time, and the mean TPOT after it."""
    serving = Serving(MODEL, policy, pool_pages=600)
    coming = arrivals(random.Random(per_s), per_s, 8.0, tiers)
    serve(serving, coming, 12.0)
    promised = [text for text in serving.done if text.tier == "promised"]
    assert serving.late == []
    for text in promised:
        assert text.first_at <= text.request.deadline
        if text.request.tpot_s is not None and text.num_tokens > 1:
            assert (text.last_at - text.first_at) / (text.num_tokens - 1) <= text.request.tpot_s + 1e-9
    assert len(promised) > (60 if per_s > 4 else 20)
    assert per_s == 4 or len(promised) < len(coming) - 20, "too much comes to promise it all"


class Generous(Serving):
    """Promises everybody what they ask for."""

    def ask(self, texts):
        super().ask(texts)
        for text in texts:
            if text.tier == "best_effort":
                self.book.promise(text.request)


def test_without_admission_promises_would_be_broken():
    """So the law above can fail."""
    serving = serve(Generous(MODEL), arrivals(random.Random(25), 25, 8.0, (0.05, 0.1)), 12.0)
    assert len(serving.late) > 100
