"""What a fork begins with."""

import sys
from multiprocessing.spawn import get_preparation_data
from types import ModuleType

import pytest

from experiments.harness import forks

pytestmark = pytest.mark.nodes


def test_a_fork_imports_nothing_of_the_main_module(monkeypatch):
    main = ModuleType("__main__")
    main.__file__ = __file__  # pytest's workers have none
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert _mains()
    with forks._without_main():
        assert not _mains()
    assert sys.modules["__main__"] is main


def _mains():
    return {name for name in get_preparation_data("a fork") if name.startswith("init_main")}
