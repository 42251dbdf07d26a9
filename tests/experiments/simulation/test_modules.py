"""The modules of the experiments import each other in one direction only, those under TYPE_CHECKING included."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = "experiments"


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


MODULES = {module_of(path): path for path in (ROOT / PACKAGE).rglob("*.py") if path.stem != "__init__"}


def imported(source: str) -> set[str]:
    """Names of the package's modules that this source imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def test_imports_under_type_checking_count() -> None:
    world, text = f"{PACKAGE}.simulation.world", f"{PACKAGE}.simulation.texts.text"
    assert imported(f"if TYPE_CHECKING:\n    from {world} import World") == {world}
    assert imported(f"from {PACKAGE}.simulation import world\nimport {text}") == {world, text}


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: imported(path.read_text("utf-8")) for name, path in MODULES.items()}
    nodes = f"{PACKAGE}.simulation.nodes"
    assert graph[f"{PACKAGE}.simulation.world"] >= {f"{nodes}.draft", f"{nodes}.verify"}
    list(TopologicalSorter(graph).static_order())  # CycleError names the circle
