"""A function of each of many items, in several processes at once.

The items are independent worlds of their own virtual clocks, so what comes out depends neither on the number of
processes nor on what else the machine does.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from experiments.harness.progress import parts

Item = TypeVar("Item")
Found = TypeVar("Found")


def each(what: str, function: Callable[[Item], Found], items: Sequence[Item], processes: int = 1) -> list[Found]:
    """Returns the function's results for the items, in their order; tells how many are done, as `parts` does.

    function, items: what `pickle` can send to other processes. processes: 0 for one on each core.
    """
    number = min(processes or len(os.sched_getaffinity(0)), len(items))
    if number <= 1:
        return [function(item) for item in parts(what, items)]
    with ProcessPoolExecutor(number, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = pool.map(function, items)  # cancels the rest where one fails
        return [next(results) for _ in parts(what, items)]
