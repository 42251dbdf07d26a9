"""Pieces of work in turn: who comes when, who is told to come later, and what becomes of those who leave."""

import asyncio
import threading
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from draft_node.service.fair_queue import FairQueue
from goodspeed.errors import Busy
from tests.waiting import until


class Bench:
    """Pieces that wait to be allowed to end, and the order in which they were begun."""

    def __init__(self) -> None:
        self.turns = FairQueue(100, "come again later", "bench")
        self.begun: list[str] = []
        self.num_at_once = self.most_at_once = 0
        self._may_end = threading.Semaphore(0)

    def ask(self, user: str, name: str, size: int = 1) -> "asyncio.Task[str]":
        def work() -> str:
            self.begun.append(name)
            self.num_at_once += 1
            self.most_at_once = max(self.most_at_once, self.num_at_once)
            self._may_end.acquire()
            self.num_at_once -= 1
            return name.upper()

        return asyncio.create_task(self.turns.run(user, size, work))

    def end(self, number: int = 1) -> None:
        self._may_end.release(number)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.end(100)  # else the thread would never end


async def test_users_take_turns_one_at_a_time(bench: Bench) -> None:
    tasks = [bench.ask("a", name) for name in ("a1", "a2", "a3")] + [bench.ask("b", "b1"), bench.ask("c", "c1")]
    bench.end(5)
    assert await asyncio.gather(*tasks) == ["A1", "A2", "A3", "B1", "C1"]
    assert bench.begun == ["a1", "b1", "c1", "a2", "a3"]
    assert bench.most_at_once == 1
    await until(lambda: not bench.turns._users)


async def test_who_has_too_much_waiting_is_told_so_and_nobody_else(bench: Bench) -> None:
    bench.turns = FairQueue(10, "come again later", "bench")
    tasks = [bench.ask("a", "a1", 6), bench.ask("a", "a2", 4)]
    await until(lambda: bench.begun)
    with pytest.raises(Busy, match="come again later"):
        await bench.ask("a", "a3")
    tasks += [bench.ask("b", "b1", 10)]
    bench.end(3)
    await asyncio.gather(*tasks)
    await until(lambda: not bench.turns._users)  # work counts for a moment after its result is there
    bench.end()
    await bench.ask("a", "a4", 50)  # alone, whatever its size
    assert "a3" not in bench.begun


async def test_what_nobody_waits_for_is_not_begun(bench: Bench) -> None:
    bench.turns = FairQueue(9, "come again later", "bench")
    first, second, third = (bench.ask("a", name, 3) for name in ("a1", "a2", "a3"))
    await until(lambda: bench.begun)
    second.cancel()
    await asyncio.wait([second])
    bench.end(2)
    await asyncio.gather(first, third)
    assert bench.begun == ["a1", "a3"]
    await until(lambda: not bench.turns._users)


async def test_what_runs_counts_after_its_caller_left_and_ends_before_the_next_begins(bench: Bench) -> None:
    bench.turns = FairQueue(10, "come again later", "bench")
    first, second = bench.ask("a", "a1", 9), bench.ask("a", "a2", 0)
    await until(lambda: bench.begun)
    first.cancel()
    await asyncio.wait([first])
    with pytest.raises(Busy):
        await bench.ask("a", "a3")
    waiting = bench.ask("b", "b1")
    bench.end(3)
    assert (await second, await waiting) == ("A2", "B1")
    assert bench.most_at_once == 1
    await until(lambda: not bench.turns._users)


async def test_an_error_is_its_own_users_and_the_next_goes_on(bench: Bench) -> None:
    def broken() -> None:
        raise ValueError("as ordered")

    failing = asyncio.create_task(bench.turns.run("a", 1, broken))
    following = bench.ask("a", "a2")
    bench.end()
    with pytest.raises(ValueError, match="as ordered"):
        await failing
    assert await following == "A2"


async def test_the_event_loop_has_a_whole_turn_between_two_pieces(bench: Bench) -> None:
    """Tasks that are ready when a piece ends run before the next piece begins, and so do those that they make ready."""
    tasks = [bench.ask("a", "a1"), bench.ask("b", "b1")]
    await until(lambda: bench.begun)
    running = bench.turns._executor.submit(lambda: None)  # behind the piece that runs
    submit = Mock(wraps=bench.turns._executor.submit)
    bench.turns._executor.submit = submit  # type: ignore[method-assign]
    bench.end()
    running.result()  # the first has ended, and the event loop does not know it yet
    num_turns = 0
    while not submit.called:
        await asyncio.sleep(0)
        num_turns += 1
    assert num_turns > 2
    bench.end()
    await asyncio.gather(*tasks)


async def test_the_end_cancels_who_waits_and_ends_the_thread(bench: Bench) -> None:
    bench.turns = FairQueue(100, "", mine := "bench-closed")
    first, second = bench.ask("a", "a1"), bench.ask("a", "a2")
    await until(lambda: bench.begun)
    bench.turns.close()
    await asyncio.wait([second])
    assert second.cancelled()
    bench.end(2)
    assert await first == "A1"
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith(mine)])
    assert bench.begun == ["a1"]
