"""Plays a plan slot by slot: what is due first goes first, and every token has to be there by its deadline.

A slot is as long as the tightest TPOT of those who decode in it; while nobody does, it lasts until the next deadline.
The first token of a request is due at its deadline and token k, k TPOTs later, whenever the first one came; each is
made within the TPOT that ends then. Times are whole numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import NamedTuple

from goodspeed.admission import Ask


class Job(NamedTuple):
    """Tokens of one request that are due at the same time; those of a prompt but the last one together."""

    due: float
    request: int
    is_last: int  # of its prompt: it goes after the others
    from_s: float  # not in slots that end by then
    num_tokens: int
    kind: str  # prompt, last, or decode


@dataclass
class Replay:
    """The work of each slot, and the tokens that came too late."""

    ends: list[float] = field(default_factory=list)
    done: list[list[Job]] = field(default_factory=list)  # with the tokens of this slot
    missed: list[Job] = field(default_factory=list)

    def tokens(self, *kinds: str) -> list[int]:
        """Tokens of these kinds in each slot."""
        return [sum(job.num_tokens for job in slot if job.kind in kinds) for slot in self.done]

    def firsts(self) -> dict[int, float]:
        """Returns when each request's first token came."""
        slots = zip(self.ends, self.done, strict=True)
        return {job.request: end for end, slot in slots for job in slot if job.kind == "last"}


def replay(
    asks: Sequence[Ask],
    decoding: Sequence[float],
    tokens_in: Callable[[float], float],
    until: float,
    *,
    hold: bool = True,
) -> Replay:
    """Plays the plan of these asks, all of which are kept. hold: last prompt tokens wait until a TPOT before they
    are due; else they go with the others.
    """
    waiting = [job for number, ask in enumerate(asks) for job in prompt(number, ask, hold)]
    waiting += [job for number, ask in enumerate(asks) for job in decodes(number, ask.deadline_s, ask.tpot_s, until)]
    for number, tpot_s in enumerate(decoding):
        waiting += decodes(-1 - number, 0.0, tpot_s, until)
    heapify(waiting)
    played, at = Replay(), 0.0
    while waiting and not played.missed and at < until:
        running = [*decoding, *(ask.tpot_s for ask in asks if ask.deadline_s <= at and ask.tpot_s is not None)]
        end = at + min(running) if running else min(ask.deadline_s for ask in asks if ask.deadline_s > at)
        played.ends.append(end)
        played.done.append(one_slot(waiting, end, int(tokens_in(end - at) + 1e-9)))
        played.missed = [job for job in waiting if job.due <= end]
        at = end
    return played


def one_slot(waiting: list[Job], end: float, room: int) -> list[Job]:
    """Takes what fits from a heap, and returns it."""
    done, later = [], []
    while waiting and room:
        job = heappop(waiting)
        if job.from_s >= end:
            later.append(job)
            continue
        number = min(room, job.num_tokens)
        done.append(job._replace(num_tokens=number))
        room -= number
        if number < job.num_tokens:
            later.append(job._replace(num_tokens=job.num_tokens - number))
    waiting += later
    heapify(waiting)
    return done


def prompt(number: int, ask: Ask, hold: bool) -> list[Job]:
    from_s = ask.deadline_s - ask.tpot_s if hold and ask.tpot_s is not None else -1.0
    jobs = [Job(ask.deadline_s, number, 1, from_s, 1, "last")] if ask.prompt_tokens else []
    if ask.prompt_tokens > 1:
        jobs.append(Job(ask.deadline_s, number, 0, -1.0, ask.prompt_tokens - 1, "prompt"))
    return jobs


def decodes(number: int, first: float, tpot_s: float | None, until: float) -> list[Job]:
    """Token k, from 1 on, is due k TPOTs after the first, and made in the TPOT before that."""
    if tpot_s is None:
        return []
    count = int((until - first) / tpot_s)
    return [Job(first + k * tpot_s, number, 0, first + (k - 1) * tpot_s, 1, "decode") for k in range(1, count + 1)]
