"""Runs every benchmark of this folder in turn, each in a process of its own: `python -m experiments.benchmarks`.

A benchmark is a module with a function `main`; it takes --quick and --json and prints one JSON object as its last line
under --json. Then the last line here is one object too, with theirs by module name.
"""

import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.harness.forks import Fork
from experiments.harness.runner import run_all


def benchmarks() -> list[str]:
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return [file.stem for file in files if has_main(ast.parse(file.read_text("utf-8")))]


def has_main(module: ast.Module) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in module.body)


def fork(module: str, arguments: Sequence[str]) -> Any:
    """Starts a benchmark as a fork of one process that has imported torch, which saves 3 s of CPU each."""
    return Fork(module, *arguments, stderr=sys.stderr.fileno())


def main() -> int:
    modules = [f"experiments.benchmarks.{name}" for name in benchmarks()]
    return run_all("experiments.benchmarks", __doc__ or "", modules, quickly=fork)


if __name__ == "__main__":
    sys.exit(main())
