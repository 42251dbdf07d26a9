"""The modules of the simulation import each other in one direction only, those under TYPE_CHECKING included."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "experiments" / "simulation"
PACKAGE = "experiments.simulation"


def imported(source: str) -> set[str]:
    """Names of the folder's modules that this source imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            found.add((node.module or "").split(".")[2])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[2] for alias in node.names if alias.name.startswith(f"{PACKAGE}.")}
    return found


def test_imports_under_type_checking_count() -> None:
    assert imported("if TYPE_CHECKING:\n    from experiments.simulation.world import World") == {"world"}
    assert imported("from experiments.simulation import world\nimport experiments.simulation.text") == {"world", "text"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {path.stem: imported(path.read_text("utf-8")) for path in FOLDER.glob("*.py")}
    assert graph["world"] >= {"draft", "verify"}
    list(TopologicalSorter(graph).static_order())  # CycleError names the circle


def test_a_circle_would_be_found() -> None:
    with pytest.raises(CycleError):
        list(TopologicalSorter({"world": {"draft"}, "draft": {"world"}}).static_order())
