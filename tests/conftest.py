"""Settings of all tests: one CPU thread, also in the processes they start, and no deadlines.

Small matrices gain nothing from more threads, and lose much when the machine has other things to do. A file whose tests
start nodes says so (`pytestmark = pytest.mark.nodes`): two such files run side by side, after all others have. One that
also watches the clock, or takes ports by their numbers, is `alone`: `make test-all` runs these one by one at the end.
Some with `nodes`, one of each kind, are `essential`: `make test` runs those, and `make test-all` all. `real` ones need
the model smollm2: only `make test-all` runs them.
"""

import asyncio
import os
from collections import Counter
from inspect import iscoroutinefunction, signature
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import smollm2
from tests.waiting import TIMEOUT_S

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, which is after this

settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of what starts nodes, or is real, imports no files without its marks: all files together take 20 s."""
    asked = f" and {config.option.markexpr}"
    wanted = [mark for mark in ("nodes", "alone", "essential", "real") if f" and {mark}" in asked]
    if not wanted or " or " in asked or not collection_path.name.startswith("test_"):
        return None
    source = collection_path.read_text("utf-8")
    return None if all(f"pytest.mark.{mark}" in source for mark in wanted) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses equal node ids: pytest-xdist would run one of these tests, and not tell so."""
    shared = [node_id for node_id, number in Counter(item.nodeid for item in items).items() if number > 1]
    if shared:
        raise pytest.UsageError(f"several tests have this node id, and pytest-xdist would run one: {', '.join(shared)}")


@pytest.hookimpl(tryfirst=True)  # before fixtures start nodes
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("real"):
        smollm2.need()


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine, in an event loop of its own and with a limit of time."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), TIMEOUT_S))
    return True
