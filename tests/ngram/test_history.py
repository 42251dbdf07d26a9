"""Histories: whose texts draft for whom, and the bound over all users."""

import tracemalloc

import pytest

from goodspeed.errors import ConfigError
from goodspeed.ngram import history
from goodspeed.ngram.drafting import draft
from goodspeed.ngram.history import History
from goodspeed.ngram.index import GrowingText
from goodspeed.wire.messages import Sampling
from tests.ngram.reference import texts_of


def texts(found, user):
    return [text for index in found.indexes(user) for text in texts_of(index)]


def drafted(found, user):
    text = GrowingText([1, 2])
    return draft(text, found.indexes(user), 1, sampling=Sampling(temperature=0.0), least_probability=0.0).tokens


def test_a_user_s_text_never_drafts_for_another():
    found = History(1_000, per_user=True)
    found.add("a", [1, 2, 3])
    assert drafted(found, "a") == (3,)
    assert drafted(found, "b") == ()
    assert drafted(found, "") == ()
    found.add("b", [1, 2, 4])
    assert (drafted(found, "a"), drafted(found, "b")) == ((3,), (4,))
    assert not {id(index) for index in found.indexes("a")} & {id(index) for index in found.indexes("b")}


def test_the_bound_holds_over_all_users_and_whoever_has_most_loses_the_oldest():
    found = History(100, per_user=True)
    for number in range(4):
        found.add("a", [number] * 20)
    found.add("b", [7] * 20)
    assert found.num_tokens == 100
    found.add("c", [8] * 10)
    assert found.num_tokens == 90
    assert texts(found, "a") == [[number] * 20 for number in (1, 2, 3)]
    assert texts(found, "b") == [[7] * 20]


@pytest.mark.parametrize("length", [3, 10, 40])
def test_one_user_never_pushes_out_the_others(length):
    found = History(120, per_user=True)
    others = {"a": [1] * 20, "b": [2] * 30, "c": [3] * 25}
    for user, text in others.items():
        found.add(user, text)
    for number in range(200):
        found.add("greedy", [number] * length)
        assert found.num_tokens <= 120
    assert {user: texts(found, user) for user in others} == {user: [text] for user, text in others.items()}
    assert texts(found, "greedy")[-1] == [199] * min(length, 30)


def test_where_everybody_has_one_text_the_one_away_longest_makes_room_and_nobody_while_others_have_several():
    found = History(100, per_user=True)
    for user in "abcd":
        found.add(user, [1] * 25)
    found.add("a", [2] * 5)  # a has two now, and loses the older
    assert texts(found, "a") == [[2] * 5]
    found.add("e", [3] * 25)
    assert [user for user in "abcde" if texts(found, user)] == ["a", "c", "d", "e"]
    found = History(100, per_user=True)
    found.add("a", [1] * 25)
    for user in "bcd":
        found.add(user, [2] * 10)
        found.add(user, [3] * 10)
    found.add("e", [4] * 20)
    assert [len(texts(found, user)) for user in "abcde"] == [1, 1, 2, 2, 1]


def test_users_are_bounded_too(monkeypatch):
    monkeypatch.setattr(history, "MAX_USERS", 5)
    found = History(10_000, per_user=True)
    for user in range(50):
        found.add(str(user), [1, 2, 3])
    assert [user for user in range(50) if texts(found, str(user))] == [45, 46, 47, 48, 49]
    assert found.num_tokens == 15


@pytest.mark.thorough
def test_many_users_take_little_memory():
    tracemalloc.start()
    try:
        found = History(1_000_000, per_user=True)
        for user in range(3 * history.MAX_USERS):
            found.add(str(user), range(100))
        num_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_bytes <= 10 << 20


def test_what_is_too_short_to_be_matched_is_not_kept():
    found = History(100, per_user=True)
    found.add("a", [1, 2])
    assert found.indexes("a") == []
    with pytest.raises(ConfigError, match="at least 1"):
        History(0, per_user=True)
