"""Deadlines and rounds by hand."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Any

from goodspeed.slo.capacity import FLOOR
from goodspeed.slo.objectives import Objectives
from verify_node.session.deadline import Deadline
from verify_node.slo.promises import Decision, decide

NO_BOUND = 10**9


class HandRounds:
    """Rounds that carry what a function says, all of which may be promised."""

    def __init__(self, tokens_in: Callable[[float], float], least_s: float = inf) -> None:
        self.tokens_in, self.least_s = tokens_in, least_s

    def seconds_for(self, num_tokens: int) -> float:
        low, high = 0.0, 1e6  # to a nanosecond
        while high - low > 1e-9 * max(1.0, low):
            middle = (low + high) / 2
            low, high = (low, middle) if int(self.tokens_in(middle)) >= num_tokens else (middle, high)
        return high - 1e-9

    def promised_in(self, seconds: float, share: float = 1.0) -> float:
        return share * self.tokens_in(seconds)

    def beside(self, seconds: float, num_tokens: int, others: Sequence[int]) -> int:
        return int(self.tokens_in(seconds)) - num_tokens


def deadline(key: bytes, due: float, prompt: int = 1, tpot_s: float | None = 1.0, pages: int = 0) -> Deadline:
    """One of a client of its own, whose prompt is to be read."""
    one = Deadline(0.0, session_id=key, client=key.hex(), slo=Objectives(tpot_s=tpot_s), paced_at=due)
    one.set_prompt(prompt)
    one.pages = pages
    return one


def running(key: bytes, at: float = 0.0, number: int = 1, tpot_s: float | None = 1.0, due=None) -> Deadline:
    """One that decodes since a time and has had so many tokens."""
    one = deadline(key, at if due is None else due, 1, tpot_s)
    for num_tokens in (1, number - 1):
        one.delivered(num_tokens, at)
    one.set_prompt(1)
    return one


def promised(*deadlines: Deadline) -> dict[bytes, Deadline]:
    return {one.session_id: one for one in deadlines}


def decided(held: Mapping[bytes, Deadline], asked: Iterable[Deadline], tokens_in, now=0.0, **by: Any) -> list[bool]:
    """least_round_s, pages and policy as they are without a floor."""
    rounds: Any = HandRounds(tokens_in, by.pop("least_round_s", inf))
    pages = ceil(by.pop("pages", NO_BOUND) / (1.0 - FLOOR))
    return decide(held, list(asked), Decision(now, rounds, pages, defaultdict(lambda: 1.0), **by))
