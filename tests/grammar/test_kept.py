"""What is kept of compiled constraints: by scope, fairly between clients and users, and as long as it is held."""

import pytest

from goodspeed.grammar import kept
from goodspeed.grammar.kept import ALONE, Kept, Key, Scope, scope_of

ALICE, BOB = scope_of("alice"), scope_of("bob")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Kept[str]:
    """Keeps four constraints, with 40 characters together."""
    monkeypatch.setattr(kept, "MAX_KEPT", 4)
    monkeypatch.setattr(kept, "MAX_CHARS", 40)
    return Kept()


def put(store: Kept[str], scope: Scope, *sources: str) -> None:
    for source in sources:
        store.put(Key(scope, "regex", source), source)


def there(store: Kept[str], scope: Scope, sources: str) -> str:
    return "".join(source for source in sources if store.get(Key(scope, "regex", source)) is not None)


def test_nobody_finds_what_another_has_sent(few: Kept[str]) -> None:
    put(few, ALICE, "a")
    scopes = [ALICE, BOB, ALONE, Scope(b"alice"), Scope(b"b", b"alice")]
    assert [there(few, scope, "a") for scope in scopes] == ["a", "", "", "", ""]


def test_the_newest_of_a_scope_are_kept_by_number_and_by_size(few: Kept[str]) -> None:
    put(few, ALICE, "a", "b", "c", "d")
    assert there(few, ALICE, "a") == "a"  # which is the newest now
    put(few, ALICE, "e")
    assert there(few, ALICE, "abcde") == "acde"
    put(few, ALICE, "x" * 38)
    assert there(few, ALICE, "abcde") == "de"
    put(few, ALICE, "y" * 100)  # alone beyond the bound: it is wanted now
    assert few.get(Key(ALICE, "regex", "y" * 100)) is not None
    assert there(few, ALICE, "abcde") == ""


def test_who_sends_many_throws_out_his_own(few: Kept[str]) -> None:
    put(few, BOB, "a", "b")
    put(few, ALICE, *"cdefgh")
    assert (there(few, BOB, "ab"), there(few, ALICE, "cdefgh")) == ("ab", "gh")


def test_who_sends_long_ones_throws_out_his_own(few: Kept[str]) -> None:
    put(few, BOB, "a", "b")
    put(few, ALICE, "c" * 30, "d" * 30)
    assert there(few, BOB, "ab") == "ab"
    assert few.get(Key(ALICE, "regex", "c" * 30)) is None


def test_a_client_gets_no_more_by_inventing_users(few: Kept[str]) -> None:
    one, other = Scope(b"one", b"user"), Scope(b"other", b"user")
    put(few, one, "a", "b")
    for number in range(9):
        put(few, Scope(b"other", bytes([number])), "c")
    assert there(few, one, "ab") == "ab"
    put(few, other, "d", "e")  # of a client's users, it is again the one with the most
    put(few, Scope(b"other", b"third"), "f")
    assert (there(few, one, "ab"), there(few, other, "de")) == ("ab", "e")


def test_what_is_held_is_not_thrown_out_and_takes_no_place(few: Kept[str]) -> None:
    put(few, ALICE, "a")
    for holder in (b"1", b"2", b"1"):
        few.hold(holder, Key(ALICE, "regex", "a"), "a")
    put(few, ALICE, *"bcdefg")
    assert there(few, ALICE, "abcdefg") == "adefg"
    assert (few.of(b"1", "regex", "a"), few.of(b"1", "choice", "a"), few.of(b"3", "regex", "a")) == ("a", None, None)
    few.release(b"1")
    put(few, ALICE, *"bcdefg")
    assert there(few, ALICE, "a") == "a"  # the other still holds it
    few.release(b"2")
    assert there(few, ALICE, "abcdefg") == "aefg"  # as the newest of those that may go
    put(few, ALICE, *"bcd")
    few.get(Key(ALICE, "regex", "e"))
    put(few, ALICE, *"fgh")
    assert there(few, ALICE, "a") == ""


def test_a_holder_has_two_at_most_and_is_left_with_the_one_that_is_named(few: Kept[str]) -> None:
    for source in "abc":
        few.hold(b"1", Key(ALICE, "regex", source), source)
    assert [few.of(b"1", "regex", source) for source in "abc"] == ["a", None, "c"]
    few.release(b"1", but=("regex", "c"))
    assert [few.of(b"1", "regex", source) for source in "abc"] == [None, None, "c"]
    few.release(b"1")
    few.release(b"1")
    assert there(few, ALICE, "abc") == "abc"
