"""How much room a client's key leaves its drafts."""

from types import SimpleNamespace
from typing import Any

from verify_node.rounds.caps import room


def session(number: int, client: Any) -> Any:
    return SimpleNamespace(session_id=bytes([number]), client=client)


def client(name: str, limit: int | None) -> Any:
    return SimpleNamespace(name=name, max_round_tokens=limit)


def test_without_a_limit_there_is_nothing_to_say() -> None:
    assert room([session(1, client("a", None))]) == {}


def test_a_limit_is_shared_and_the_first_have_what_remains() -> None:
    a, b = client("a", 8), client("b", None)
    assert room([session(1, a), session(2, b), session(3, a), session(4, a)]) == {b"\1": 3, b"\3": 3, b"\4": 2}


def test_a_limit_below_the_number_of_sessions_leaves_some_nothing() -> None:
    a = client("a", 1)
    assert room([session(1, a), session(2, a)]) == {b"\1": 1, b"\2": 0}
    assert room([session(1, a), session(2, a)], number=1) == {b"\1": 0, b"\2": 1}
