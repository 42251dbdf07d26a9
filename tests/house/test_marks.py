"""Tests that start nodes say so in their own file: beside many others they would wait, and be waited for."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
STARTS = {
    "experiments.harness.forks",
    "tests.nodes",
    "tests.app.demo.test_demo",
    "experiments.benchmarks.nodes.proxy",
    "tests.fuzz.live",
    "tests.verify_node.watch.window.browser",
}
"""Modules with which processes are started, or clocks watched."""


def imported(tree: ast.Module) -> set[str]:
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return names | {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}


@pytest.mark.parametrize("file", sorted(TESTS.rglob("test_*.py")), ids=lambda file: str(file.relative_to(TESTS)))
def test_a_file_that_starts_nodes_says_so(file: Path) -> None:
    source = file.read_text()
    if STARTS & imported(ast.parse(source)):
        assert ("pytest.mark.nodes" in source) is not ("pytest.mark.alone" in source)
    if "pytest.mark.essential" in source:  # `make test` runs none that is `alone`
        assert "pytest.mark.nodes" in source
