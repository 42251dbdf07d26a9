"""Virtual time: what happens next, and when. Events at the same time happen in the order in which they were set."""

import heapq
import itertools
from collections.abc import Callable
from math import ulp
from typing import Any


class Clock:
    """A heap of events."""

    def __init__(self) -> None:
        self.now = 0.0
        self.num_events = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._stopped = False
        self._core_free_at = self._short_free_at = 0.0

    def at(self, time: float, event: Callable[..., None], *arguments: Any) -> None:
        """Calls `event` then, or now if that is past."""
        heapq.heappush(self._events, (max(time, self.now), next(self._order), event, arguments))

    def after(self, seconds: float, event: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + seconds, event, *arguments)

    def on_core(self, seconds: float, *, is_short: bool = False) -> float:
        """Returns when work of so many seconds is done on the one core that draft nodes share, after all before it.

        is_short: it waits for other short work only, as a scheduler has it, and other work waits for it.
        """
        self._core_free_at = max(self.now, self._core_free_at) + seconds
        if not is_short:
            return self._core_free_at
        self._short_free_at = max(self.now, self._short_free_at) + seconds
        return self._short_free_at

    def free_core(self, seconds: float) -> None:
        """Takes back work that was to be done on that core."""
        self._core_free_at -= seconds

    def core_busy_s(self, seconds: float) -> float:
        """Returns for how many of the next seconds that core has work already."""
        return min(seconds, max(0.0, self._core_free_at - self.now))

    def step(self) -> None:
        """The next event; IndexError when there is none."""
        self.now, _, event, arguments = heapq.heappop(self._events)
        self.num_events += 1
        event(*arguments)

    def run(self) -> None:
        """Runs one event after the other until `stop` is called; IndexError when none is left."""
        self._stopped = False
        while not self._stopped:
            self.step()

    def stop(self) -> None:
        self._stopped = True

    def run_until(self, time: float) -> None:
        """Everything up to then."""
        while self._events and self._events[0][0] <= time:
            self.step()
        self.now = max(self.now, time)


class Watch:
    """A node's own clock: set wrongly by `ahead_s`, and too fast by the share `drift`."""

    def __init__(self, clock: Clock, ahead_s: float = 0.0, drift: float = 0.0) -> None:
        self._clock = clock
        self._ahead_s = ahead_s
        self._rate = 1.0 + drift

    @property
    def now(self) -> float:
        return self._ahead_s + self._rate * self._clock.now

    def until(self, time: float) -> float:
        """Virtual time at which this watch shows `time`, or a little more where no number shows exactly that."""
        at = (time - self._ahead_s) / self._rate
        while self._ahead_s + self._rate * at < time:
            at += max(ulp(at), ulp(time))
        return at
