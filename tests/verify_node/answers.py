"""What a verify node answers and plans, by the numbers that tests give sessions."""

from collections.abc import Iterable
from typing import Any

from goodspeed.wire.messages import Refusal
from verify_node.scheduler.round import Round


def refusal(answers: Iterable[Any], code: str | None = None) -> Refusal:
    """The only answer, a refusal that says what to do; of this code if one is given."""
    [answer] = answers
    assert isinstance(answer, Refusal), answer
    assert code in (None, answer.code)
    assert answer.what
    assert answer.what_to_do
    return answer


def refusals(answers: Iterable[Any]) -> list[Refusal]:
    """Those among the answers."""
    return [answer for answer in answers if isinstance(answer, Refusal)]


def number_of(session_id: bytes) -> int:
    """The number of which `tests.fakes.session_id` made this."""
    return int.from_bytes(session_id, "big")


def fed(planned: Round) -> dict[int, int]:
    """Tokens that a round feeds each of its sessions, by number."""
    return {number_of(entry.session_id): len(entry.tokens) for entry in planned.entries}
