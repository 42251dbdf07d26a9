"""The house, as far as import-linter does not see it: what importing a room loads, and how much lies beside the rooms.

Who may import whom is said in `pyproject.toml`, and checked by `make check`.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("goodspeed", "draft_node", "verify_node")
MAX_FILES = 12  # directly under each of the three packages: whoever lists one sees its rooms
LIBRARIES: tuple[str, ...] = ("torch", "transformers", "zmq", "starlette", "uvicorn", "prometheus_client", "ray")
ALL: tuple[str, ...] = (*LIBRARIES, "numpy")
TENSORS: tuple[str, ...] = ("torch", "transformers")
RULES = ["draft_node.core", "draft_node.parsing", "goodspeed.fair", "goodspeed.fleet", "goodspeed.slo"]
RULES += [f"verify_node.{room}" for room in ("clients", "core", "scheduler", "session", "slo")]
WITHOUT_TENSORS = ["goodspeed.constraint", "goodspeed.engine.tokenizing", "goodspeed.wire", "draft_node.http"]
WITHOUT_TENSORS += ["draft_node.service", "draft_node.model.llamacpp"]
LOADS_NONE_OF = dict.fromkeys(("goodspeed.embedded", "goodspeed.ngram"), ALL)
LOADS_NONE_OF |= dict.fromkeys(RULES, LIBRARIES) | dict.fromkeys(WITHOUT_TENSORS, TENSORS)
"""Libraries that importing all of a room does not load, at whatever depth. In one process, the strictest first."""

LOADER = """
import importlib, json, pkgutil, sys

for room, libraries in json.load(sys.stdin).items():
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(package.__path__, f"{room}."):
        importlib.import_module(module.name)
        if loaded := [library for library in libraries if library in sys.modules]:
            sys.exit(f"importing {module.name} loads {loaded}")
"""

BARE = "tests.gpu.__main__"
"""The module that `make gpu` runs, on a machine that has torch and transformers and nothing of ours installed."""

AT_HAND = {"torch", "triton", "jinja2", "transformers", "numpy", "huggingface_hub", "safetensors"}
"""torch brings jinja2, and its CUDA builds triton; transformers brings the last two."""
OURS = {*PACKAGES, "experiments", "training", "tests"}


def loaded_with(graph: grimp.ImportGraph, module: str) -> set[str]:
    """All that importing a module may load, at whatever depth, the packages around each module too."""
    found, waiting = {module}, [module]
    while waiting:
        name = waiting.pop()
        around = {name.rpartition(".")[0]} & graph.modules
        new = (graph.find_modules_directly_imported_by(name) | around) - found
        found |= new
        waiting += new
    return found


def test_importing_a_room_does_not_load_what_it_can_do_without():
    command = [sys.executable, "-c", LOADER]
    run = subprocess.run(command, cwd=ROOT, input=json.dumps(LOADS_NONE_OF), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_what_runs_on_a_bare_machine_needs_torch_and_transformers_only():
    graph = grimp.build_graph(*OURS, include_external_packages=True, cache_dir=None)
    wrong = {
        f"it needs {library}, by {graph.find_shortest_chain(BARE, library)}"
        for library in loaded_with(graph, BARE)
        if library.partition(".")[0] not in AT_HAND | OURS | sys.stdlib_module_names
    }
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_few_files_lie_beside_the_rooms(package):
    assert len(list((ROOT / package).glob("*.py"))) <= MAX_FILES


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_says_what_it_is_for(package):
    rooms = (ROOT / package).rglob("__init__.py")
    assert not [room for room in rooms if len((ast.get_docstring(ast.parse(room.read_text())) or "").split()) < 8]
