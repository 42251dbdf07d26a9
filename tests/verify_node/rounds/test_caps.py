"""How much room a client's key leaves its drafts."""

from types import SimpleNamespace
from typing import Any

from verify_node.rounds.caps import room


def session(number: int, client: Any, assigned: int | None = None) -> Any:
    return SimpleNamespace(session_id=bytes([number]), client=client, assigned=assigned)


def client(name: str, limit: int | None) -> Any:
    return SimpleNamespace(name=name, max_round_tokens=limit)


def test_without_a_limit_there_is_nothing_to_say() -> None:
    one = session(1, client("a", None))
    assert room([one], [one]) == {}


def test_a_limit_is_shared_and_what_others_hold_is_left_out() -> None:
    a, b = client("a", 8), client("b", None)
    sessions = [session(1, a), session(2, a), session(3, a, assigned=1), session(4, b, assigned=50), session(5, b)]
    participants = [sessions[0], sessions[1], sessions[4]]
    assert room(sessions, participants) == {b"\1": 4, b"\2": 3}


def test_nothing_is_left() -> None:
    a = client("a", 4)
    sessions = [session(1, a, assigned=4), session(2, a)]
    assert room(sessions, sessions[1:]) == {b"\2": 0}
