"""The draft model at work, when it does not work: it raises, hangs, and works again."""

import asyncio
import threading
import time
from collections import OrderedDict
from itertools import pairwise
from typing import Any

import pytest

from draft_node.core.generation import Generation
from draft_node.model import drafting as module
from draft_node.model.circuit_breaker import MAX_OPEN_S, OPEN_S, CircuitBreaker
from draft_node.model.drafting import Drafting
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.wire.messages import Sampling
from tests.waiting import until


class FakeDrafter:
    """Draws a 7 for everybody in each step, unless told to raise or to hang."""

    called = "draft model"

    def __init__(self) -> None:
        self.jobs: dict[bytes, Propose] = {}
        self.known: set[bytes] = set()
        self.failure: Exception | None = None
        self.hanging, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    @property
    def busy(self) -> bool:
        return bool(self.jobs)

    def add(self, propose: Propose) -> None:
        self.known.add(propose.request.session_id)
        self.jobs[propose.request.session_id] = propose

    def forget(self, session_id: bytes) -> None:
        self.known.discard(session_id)
        self.jobs.pop(session_id, None)

    def step(self) -> list[Proposed]:
        if not self.go_on.is_set():
            self.hanging.set()
            assert self.go_on.wait(60.0)
        if self.failure is not None:
            raise self.failure
        done = [answer(job, 7) for job in self.jobs.values()]
        self.jobs.clear()
        return done

    def close(self) -> None: ...

    def give_up(self) -> list[Proposed]:
        given_up = [answer(job) for job in self.jobs.values()]
        self.jobs.clear()
        return given_up

    def abandon(self) -> list[Proposed]:
        self.known.clear()
        return self.give_up()


def wanted(number: int, round: int = 0) -> Propose:
    return Propose(Generation(bytes([number]) * 16, (1, 2), Sampling(), 10), 1, round, (1, 2), 1)


def answer(propose: Propose, *tokens: int) -> Proposed:
    return Proposed(propose.request.session_id, propose.epoch, propose.round, tokens)


def make() -> tuple[Drafting, FakeDrafter]:
    fake: Any = FakeDrafter()
    return Drafting(fake), fake


async def test_a_model_that_raises_is_left_alone_and_tried_one_proposal_at_a_time() -> None:
    drafting, fake = make()
    fake.failure = RuntimeError("out of memory")
    assert drafting.want(wanted(1), 0.0) is None
    assert drafting.want(wanted(2), 0.0) is None
    assert await drafting.take() == [answer(wanted(1)), answer(wanted(2))]
    assert not fake.known  # what the cache held is not trusted any more
    now = asyncio.get_running_loop().time()
    assert drafting.want(wanted(1, 1), now) == answer(wanted(1, 1))  # at once, and not asked
    fake.failure = None
    later = now + OPEN_S + 1.0
    assert drafting.want(wanted(1, 2), later) is None
    assert drafting.want(wanted(2, 2), later) == answer(wanted(2, 2))
    assert await drafting.take() == [answer(wanted(1, 2), 7)]
    assert drafting.want(wanted(1, 3), later) is drafting.want(wanted(2, 3), later) is None
    assert await drafting.take() == [answer(wanted(1, 3), 7), answer(wanted(2, 3), 7)]
    assert drafting.breaker.num_failures == 1
    drafting.close()


async def test_nothing_piles_up_while_the_model_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draft_node.model.circuit_breaker.DRAFTING_TIMEOUT_S", 0.05)
    drafting, fake = make()
    fake.go_on.clear()
    drafting.want(wanted(1), 0.0)
    taking = asyncio.create_task(drafting.take())
    assert await asyncio.to_thread(fake.hanging.wait, 30.0)
    now = asyncio.get_running_loop().time()
    for number in range(1, 50):
        assert drafting.want(wanted(2, number), now) is None  # not known yet that it hangs
    later = now + 1.0
    for number in range(3, 100):
        assert drafting.want(wanted(number), later) == answer(wanted(number))
        drafting.forget(wanted(number).request.session_id)
    drafting.forget(wanted(1).request.session_id)
    assert len(drafting._wanted) == 2  # the newest of the second session, and that the first is over
    await until(lambda: drafting.breaker.is_open(time.monotonic()))
    fake.go_on.set()
    assert await taking == [answer(wanted(1), 7)]  # late; its session has gone on
    assert drafting.breaker.num_failures == 1
    assert await drafting.take() == [answer(wanted(2, 49), 7)]
    assert fake.known == {wanted(2).request.session_id}
    drafting.close()


async def test_a_model_that_hangs_holds_no_end_up(monkeypatch, caplog):
    monkeypatch.setattr(module, "DRAFTING_TIMEOUT_S", 0.05)
    drafting, fake = make()
    fake.go_on.clear()
    drafting.want(wanted(1), 0.0)
    taking = asyncio.create_task(drafting.take())
    assert await asyncio.to_thread(fake.hanging.wait, 30.0)
    taking.cancel()
    drafting.close()
    assert "hangs" in caplog.text
    fake.go_on.set()  # so that this process can end


def test_the_model_thread_may_take_a_request_at_any_moment() -> None:
    """Here as soon as it is queued, before the event loop goes on."""
    drafting, fake = make()

    class Taken(OrderedDict[bytes, Propose | None]):
        def __setitem__(self, session_id: bytes, request: Propose | None) -> None:
            super().__setitem__(session_id, request)
            drafting._take_wanted()

    drafting._wanted = Taken()
    assert drafting.want(wanted(1), 0.0) is None
    assert fake.known == {bytes([1]) * 16}
    drafting.forget(bytes([1]) * 16)
    assert fake.known == set()


# -- the circuit breaker -----------------------------------------------------------------------------------------------


def test_after_each_failure_in_a_row_it_rests_for_longer():
    breaker, now, ends = CircuitBreaker(), 0.0, [0.0]
    for _ in range(5):
        breaker.begin(now)
        breaker.failed(now)
        while breaker.is_open(now):
            now += 0.5
        ends.append(now)
    rests = [after - before for before, after in pairwise(ends)]
    assert rests == [OPEN_S, 2 * OPEN_S, 4 * OPEN_S, MAX_OPEN_S, MAX_OPEN_S]
    breaker.worked()
    breaker.failed(now)
    assert breaker.is_open(now + OPEN_S - 0.1)
    assert not breaker.is_open(now + OPEN_S)
    assert breaker.num_failures == 6


def test_it_survives_failures_for_days():
    breaker = CircuitBreaker()
    for number in range(2000):
        breaker.failed(number * MAX_OPEN_S)
    assert breaker.is_open(2000 * MAX_OPEN_S - 0.1)
    assert not breaker.is_open(2000 * MAX_OPEN_S)
