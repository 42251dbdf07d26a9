"""For all tests: one CPU thread, here and in the processes they start, and no failure because a machine is slow.

Small matrices gain nothing from more threads, and lose much when the machine has other things to do. Tests that start
nodes or watch the clock are marked `alone`: `make test` runs them one by one, after all others have run side by side.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, which is after this

settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

ALONE = {
    *("demo", "docs", "faults", "fuzz", "http", "keys", "window"),
    *(f"cluster/test_{name}.py" for name in ("bad_input", "bad_peers", "ends", "put_out", "says")),
    *("draft_node/test_service.py", "draft_node/test_service_local.py", "simulation/test_twin.py"),
    *("test_hang_up.py", "test_transport.py", "test_web_patience.py"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By folder, or file."""
    tests = Path(__file__).parent
    if missing := [place for place in ALONE if not (tests / place).exists()]:
        raise pytest.UsageError(f"tests/conftest.py, ALONE: not found: {', '.join(missing)}")
    for item in items:
        place = item.path.relative_to(tests)
        if not ALONE.isdisjoint(map(Path.as_posix, (place, *place.parents))):
            item.add_marker("alone")
