"""Every folder's `__init__` docstring states what the folder may not import, and these tests hold it to that.

Three sentences are read there. "Loads nothing of: ..." forbids libraries even through others; "Imports nothing of: ..."
forbids imports that stand in the folder's own files, at whatever depth; both hold for the folders inside too. "Only
rooms that say so import: ..." keeps a library to the folders, without those inside, that say so.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("goodspeed", "draft_node", "verify_node")
LOADS, IMPORTS, ONLY = "Loads nothing of", "Imports nothing of", "Only rooms that say so import"
RULE = re.compile(rf"({LOADS}|{IMPORTS}|{ONLY}): ((?:[\w.]*\w, )*[\w.]*\w)\.(?= |$)")
MAX_FILES = 12
"""Directly under each of the three packages: whoever lists one sees its rooms."""

BARE = ("tests/gpu/__main__.py", "experiments/benchmarks/gpu.py")
"""What `make gpu` runs, on a machine that has torch and transformers and nothing of ours installed."""

AT_HAND = {"torch", "transformers", "numpy", "huggingface_hub", "safetensors"}  # transformers brings the last three
OURS = {*PACKAGES, "experiments", "training", "tests"}

FILES = [str(path.relative_to(ROOT)) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
ROOMS = [str(Path(file).parent) for file in FILES if file.endswith("/__init__.py")]


def rules(text: str) -> dict[str, set[str]]:
    """The names after each of the three sentences, as far as they are there."""
    found: dict[str, set[str]] = {}
    for kind, names in RULE.findall(" ".join(text.split())):
        found.setdefault(kind, set()).update(names.split(", "))
    return found


@cache
def source(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text("utf-8"), filename=file)


@cache
def rules_of(room: str) -> dict[str, set[str]]:
    return rules(ast.get_docstring(source(f"{room}/__init__.py")) or "")


def around(file: str) -> list[str]:
    """The rooms that this file lies in, the nearest first."""
    return [str(folder) for folder in Path(file).parents if str(folder) in ROOMS]


def imports(tree: ast.AST, file: str) -> set[str]:
    """Absolute dotted names of all that is imported anywhere in the file, inside functions too."""
    package = Path(file).with_suffix("").parts[:-1]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in {"import_module", "__import__"}:
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


def banned(file: str, room: str) -> set[str]:
    """What this file imports though a room around it forbids that."""
    mine = room.replace("/", ".")
    others = {name for name in imports(source(file), file) if not is_in(name, mine) and not is_in(mine, name)}
    stated = rules_of(room)
    forbidden = (stated.get(LOADS, set()) | stated.get(IMPORTS, set())) - belongs_to(file, room)
    return {name for name in others if any(is_in(name, ban) for ban in forbidden)}


def belongs_to(file: str, room: str) -> set[str]:
    """Libraries for which this file lies in the right room: one inside says so, whatever the room around it says."""
    return set().union(*(rules_of(inner).get(ONLY, set()) for inner in around(file) if inner.startswith(f"{room}/")))


def is_in(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def reached(file: str) -> dict[str, str]:
    """Every file of ours that is loaded with this one, and by whose import."""
    found, waiting = {file: ""}, [file]
    while waiting:
        importer = waiting.pop()
        for name in imports(source(importer), importer):
            for part in files_of(name):
                if part not in found:
                    found[part] = importer
                    waiting.append(part)
    return found


def files_of(name: str) -> list[str]:
    """Our files that importing this dotted name loads: its module and the packages around it."""
    parts = name.split(".")
    if parts[0] not in OURS:
        return []
    stems = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    return [path for stem in stems for path in (f"{stem}/__init__.py", f"{stem}.py") if (ROOT / path).is_file()]


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def libraries(file: str) -> set[str]:
    return {name.split(".")[0] for name in imports(source(file), file)}


def test_there_is_something_to_look_at():
    assert {file.split("/")[0] for file in FILES} == set(PACKAGES)
    stated = [kind for room in ROOMS for kind in rules_of(room)]
    assert min(stated.count(kind) for kind in (LOADS, IMPORTS, ONLY)) >= 4


@pytest.mark.parametrize("folder", sorted({str(Path(file).parent) for file in FILES}))
def test_every_folder_says_what_it_is_for(folder):
    assert len((ast.get_docstring(source(f"{folder}/__init__.py")) or "").split()) >= 8


@pytest.mark.parametrize("file", FILES)
def test_no_file_imports_what_the_rooms_around_it_forbid(file):
    assert not {room: wrong for room in around(file) if (wrong := banned(file, room))}


@pytest.mark.parametrize("file", FILES)
def test_some_libraries_are_imported_only_where_a_room_says_so(file):
    kept = set().union(*(rules_of(room).get(ONLY, set()) for room in ROOMS))
    allowed = rules_of(str(Path(file).parent)).get(ONLY, set())
    assert not libraries(file) & (kept - allowed)


@pytest.mark.parametrize("room", [room for room in ROOMS if LOADS in rules_of(room)])
def test_what_a_room_never_loads_is_not_loaded_through_others_either(room):
    forbidden = rules_of(room)[LOADS]
    inside = [file for file in FILES if room in around(file) and not belongs_to(file, room) & forbidden]
    names = [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in inside]
    program = (
        "import importlib, sys\n"
        "forbidden = sys.argv[1].split(',')\n"
        "for name in sys.argv[2:]:\n"
        "    importlib.import_module(name)\n"
        "    wrong = [library for library in forbidden if library in sys.modules]\n"
        "    if wrong: sys.exit(f'importing {name} loads {wrong}')\n"
    )
    command = [sys.executable, "-c", program, ",".join(sorted(forbidden)), *names]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_few_files_lie_beside_the_rooms(package):
    assert len([path for path in (ROOT / package).iterdir() if path.suffix == ".py"]) <= MAX_FILES


@pytest.mark.parametrize("file", BARE)
def test_what_runs_on_a_bare_machine_needs_torch_and_transformers_only(file):
    wrong = {
        f"{loaded} (imported by {importer or 'nobody'}) imports {library}"
        for loaded, importer in reached(file).items()
        for library in libraries(loaded) - AT_HAND - OURS - sys.stdlib_module_names
    }
    assert not wrong


def test_imports_are_followed_through_packages_and_names():
    assert files_of("goodspeed.engine.runner.Runner") == [
        "goodspeed/__init__.py",
        "goodspeed/engine/__init__.py",
        "goodspeed/engine/runner.py",
    ]
    assert "goodspeed/wire/messages.py" in reached("goodspeed/app/generation.py")
    assert "goodspeed/exact/noise.py" in reached("goodspeed/exact/rejection.py")


def test_a_rule_is_read_wherever_its_line_breaks():
    text = "A room.\n\nLoads nothing of: torch,\nzmq. Imports nothing of: time, goodspeed.app.\n" + f"{ONLY}: h11."
    assert rules(text) == {LOADS: {"torch", "zmq"}, IMPORTS: {"time", "goodspeed.app"}, ONLY: {"h11"}}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import verify_node.core.core", "verify_node.core.core"),
        ("from verify_node.core import core", "verify_node.core.core"),
        ("def late():\n    import zmq.asyncio as z", "zmq.asyncio"),
        ("if TYPE_CHECKING:\n    from torch import Tensor", "torch"),
        ("importlib.import_module('zmq')", "zmq"),
        ("from .engine import pages", "goodspeed.engine"),
    ],
)
def test_every_form_of_import_is_seen(text, name):
    assert name in imports(ast.parse(text), "goodspeed/x.py")
