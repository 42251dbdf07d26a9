"""Runs every benchmark of this folder in turn, each in a process of its own: `python -m experiments.benchmarks`.

A benchmark takes --quick and --json and prints one JSON object as its last line under --json. Then the last line here
is one object too, with theirs by module name.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.harness.forks import Fork
from experiments.harness.runner import run_all


def benchmarks() -> list[str]:
    return sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py"))


def fork(module: str, arguments: Sequence[str]) -> Any:
    """Starts a benchmark as a fork of one process that has imported torch, which saves 3 s of CPU each."""
    return Fork(module, *arguments, stderr=sys.stderr.fileno())


def main() -> int:
    modules = [f"experiments.benchmarks.{name}" for name in benchmarks()]
    return run_all("experiments.benchmarks", __doc__ or "", modules, quickly=fork)


if __name__ == "__main__":
    sys.exit(main())
