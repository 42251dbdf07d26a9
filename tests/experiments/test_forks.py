"""What a fork begins with."""

import sys
from multiprocessing.spawn import get_preparation_data

import pytest

from experiments.harness import forks

pytestmark = pytest.mark.nodes


def test_a_fork_imports_nothing_of_the_main_module():
    main = sys.modules["__main__"]
    assert _mains()
    with forks._without_main():
        assert not _mains()
    assert sys.modules["__main__"] is main


def _mains():
    return {name for name in get_preparation_data("a fork") if name.startswith("init_main")}
