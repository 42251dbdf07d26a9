"""Histories: whose texts draft for whom, the bound over all users, and the file."""

import os
import stat
import tracemalloc
from array import array

import msgspec
import pytest

from goodspeed.errors import ConfigError
from goodspeed.ngram import history, history_file
from goodspeed.ngram.drafting import draft
from goodspeed.ngram.history import History
from goodspeed.ngram.history_file import SavedHistory, SavedUser, pack
from goodspeed.ngram.index import GrowingText
from goodspeed.wire.messages import Sampling


def texts(found, user):
    return [text.tolist() for index in found.indexes(user) for text in index.texts()]


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


def test_shared_texts_draft_for_everybody_and_users_texts_are_not_among_them():
    found = History(1_000, per_user=True)
    found.add_shared([1, 2, 5])
    found.add("a", [1, 2, 3])
    assert texts(found, "a") == [[1, 2, 3], [1, 2, 5]]
    assert texts(found, "b") == [[1, 2, 5]]


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


def test_where_everybody_has_one_text_the_one_away_longest_makes_room():
    found = History(100, per_user=True)
    for user in "abcd":
        found.add(user, [1] * 25)
    found.add("a", [2] * 5)  # a has two now, and loses the older
    assert texts(found, "a") == [[2] * 5]
    found.add("e", [3] * 25)
    assert [user for user in "abcde" if texts(found, user)] == ["a", "c", "d", "e"]


def test_who_has_one_text_keeps_it_while_others_have_several():
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


def make(per_user=True, tokenizer="f1", max_tokens=1_000):
    return History(max_tokens, per_user, tokenizer=tokenizer)


@pytest.fixture
def saved(tmp_path):
    found = make()
    for number in range(3):
        found.add("a", [number, 1 << 30, 2])
    found.add("b", [9, 9, 9])
    found.add_shared([4, 4, 4])
    history_file.write(tmp_path / "history", found.contents())
    return tmp_path / "history"


def test_a_file_brings_back_every_user_s_texts_and_not_the_shared_ones(saved):
    found = make()
    assert found.load(saved) == 4
    assert texts(found, "a") == [[number, 1 << 30, 2] for number in range(3)]
    assert texts(found, "b") == [[9, 9, 9]]
    assert texts(found, "c") == []


def test_texts_of_a_file_that_are_not_kept_are_not_counted(tmp_path):
    forged = SavedHistory(
        "f1", True, [SavedUser("a", [pack(array("i", [1]))] * 1000 + [pack(array("i", [1, 2, 3]))] * 6)]
    )
    history_file.write(tmp_path / "history", forged)
    found = make(max_tokens=12)
    assert found.load(tmp_path / "history") == 4
    assert found.num_tokens == 12


def test_a_file_is_private_and_replaced_whole(saved, monkeypatch):
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    saved.chmod(0o644)
    history_file.write(saved, make().contents())
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    before = saved.read_bytes()

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError, match=r"cannot write .*history: No space left on device"):
        history_file.write(saved, make().contents())
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]  # nothing half written is left


def test_no_file_is_no_history(tmp_path):
    assert make().load(tmp_path / "none") == 0
    with pytest.raises(ConfigError, match=r"cannot write .*none/here"):
        history_file.write(tmp_path / "none" / "here", make().contents())
    with pytest.raises(ConfigError, match="cannot read"):
        make().load(tmp_path)


def test_a_smaller_bound_holds_for_what_is_loaded(saved):
    found = make(max_tokens=12)
    found.load(saved)
    assert found.num_tokens == 12
    assert texts(found, "b") == [[9, 9, 9]]


@pytest.mark.parametrize(
    ("other", "why"),
    [(make(tokenizer="f2"), "another tokenizer"), (make(per_user=False), "for each user alone, unlike this node")],
)
def test_a_file_of_another_tokenizer_or_for_other_eyes_is_refused(saved, other, why):
    with pytest.raises(ConfigError, match=rf"history file {saved} .*{why}.*; delete it, or give another path"):
        other.load(saved)
    assert other.num_tokens == 0


def test_every_damage_is_told(saved):
    data = saved.read_bytes()
    damaged = [data[:n] for n in range(0, len(data), 7)] + [data + b"x"]
    damaged += [data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :] for n in range(len(data))]
    for number, each in enumerate(damaged):
        saved.write_bytes(each)
        found = make()
        with pytest.raises(ConfigError, match=rf"history file {saved} is damaged: .*; delete it"):
            found.load(saved)
        assert found.num_tokens == 0, number


@pytest.mark.parametrize("text", [b"\xff\xff\xff\xff", b"\0\0\0"])
def test_token_ids_that_are_none_are_refused(saved, text):
    user = history_file.SavedUser("a", [text])
    saved.write_bytes(history_file.encode(history_file.SavedHistory("f1", True, [user])))
    with pytest.raises(ConfigError, match="invalid token ids"):
        make().load(saved)


def test_another_version_is_refused(saved):
    saved.write_bytes(msgspec.msgpack.encode(history_file._File(2, b"", b"")))
    with pytest.raises(ConfigError, match="version 2, but this GoodSpeed reads version 1"):
        make().load(saved)


def test_reading_is_bounded(saved, monkeypatch):
    monkeypatch.setattr(history_file, "MIN_FILE_BYTES", 10)
    with pytest.raises(ConfigError, match="more than 80 bytes"):
        make(max_tokens=10).load(saved)
