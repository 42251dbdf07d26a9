"""Who may import whom, read from the source itself. What nobody may call at all is in `test_banned_calls.py`."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("goodspeed", "draft_node", "verify_node")
NEVER = {  # package -> what it never imports
    "goodspeed": {"draft_node", "verify_node", "experiments", "tests"},
    "draft_node": {"verify_node", "experiments", "tests"},
    "verify_node": {"draft_node", "experiments", "tests"},
}
HTTP = {
    "fastapi",
    "starlette",
    "uvicorn",
    "aiohttp",
    "flask",
    "tornado",
    "httpx",
    "httpx2",
    "requests",
    "http",
    "websockets",
}
HTTP_ROOMS = (
    "goodspeed/web",
    "goodspeed/chat",
    "goodspeed/subcommands/chat.py",
    "goodspeed/demo/users.py",
    "draft_node/api",
    "verify_node/window",
)
ONLY = {  # library -> where it may be imported: files, or folders with all that is in them
    "zmq": tuple(f"goodspeed/{name}.py" for name in ("transport", "sockets", "router", "authentication")),
    "prometheus_client": ("goodspeed/metrics.py", "draft_node/metrics.py", "verify_node/metrics.py"),
} | dict.fromkeys(HTTP, HTTP_ROOMS)
PURE = [  # no tensors and no sockets, not even through what they import
    "goodspeed/codec.py",
    "goodspeed/counts.py",
    "goodspeed/defaults.py",
    "goodspeed/engine/generation_settings.py",
    "goodspeed/engine/pages.py",
    "goodspeed/enrolled.py",
    "goodspeed/errors.py",
    "goodspeed/estimators.py",
    *(f"goodspeed/latency/{file.name}" for file in sorted((ROOT / "goodspeed/latency").glob("*.py"))),
    "goodspeed/messages.py",
    "goodspeed/leading.py",
    "goodspeed/positions.py",
    "goodspeed/stops.py",
    "draft_node/actions.py",
    "draft_node/ahead.py",
    "draft_node/counts.py",
    "draft_node/link.py",
    "draft_node/local.py",
    "draft_node/odds.py",
    "draft_node/repeats.py",
    "draft_node/rests.py",
    "draft_node/session.py",
    "draft_node/standing.py",
    "verify_node/answers.py",
    "verify_node/caps.py",
    "verify_node/checks.py",
    "verify_node/conduct.py",
    "verify_node/core.py",
    "verify_node/counts.py",
    "verify_node/diary.py",
    "verify_node/outcomes.py",
    "verify_node/patience.py",
    "verify_node/planner.py",
    "verify_node/present.py",
    "verify_node/register.py",
    "verify_node/replies.py",
    "verify_node/scheduler.py",
    "verify_node/sessions.py",
    "verify_node/settlement.py",
    "verify_node/shown.py",
    "verify_node/suspicion.py",
    "verify_node/visits.py",
    *(f"goodspeed/policies/{file.name}" for file in sorted((ROOT / "goodspeed/policies").glob("*.py"))),
]
MACHINES = [
    "draft_node/ahead.py",
    "draft_node/counts.py",
    "draft_node/link.py",
    "draft_node/local.py",
    "draft_node/repeats.py",
    "draft_node/rests.py",
    "draft_node/session.py",
    "draft_node/standing.py",
    "verify_node/answers.py",
    "verify_node/conduct.py",
    "verify_node/core.py",
    "verify_node/counts.py",
    "verify_node/diary.py",
    "verify_node/planner.py",
    "verify_node/present.py",
    "verify_node/register.py",
    "verify_node/replies.py",
    "verify_node/visits.py",
]  # events in, actions out
CLOCKS_AND_IO = {"time", "datetime", "asyncio", "socket", "selectors", "threading", "subprocess"}
HEAVY = ("torch", "transformers", "zmq")
BARE = [  # run on a machine that has torch and transformers and nothing of ours installed: see `make gpu`
    *(f"goodspeed/engine/{file.name}" for file in sorted((ROOT / "goodspeed/engine").glob("*.py"))),
    "goodspeed/noise.py",
    "goodspeed/proposals.py",
    "goodspeed/rejection.py",
    "goodspeed/sampling.py",
    "goodspeed/truncation.py",
    "verify_node/drawing.py",
    "verify_node/evidence.py",
    "experiments/benchmarks/gpu.py",
    "tests/gpu/__main__.py",
]
AT_HAND = {"torch", "transformers", "numpy", "huggingface_hub", "safetensors"}  # transformers brings the last three
OURS = {*PACKAGES, "experiments", "tests"}

FILES = [str(path.relative_to(ROOT)) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def source(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text("utf-8"), filename=file)


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


def libraries(file: str) -> set[str]:
    return {name.split(".")[0] for name in imports(source(file), file)}


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


def test_there_is_something_to_look_at():
    assert {file.split("/")[0] for file in FILES} == set(PACKAGES)


@pytest.mark.parametrize("file", FILES)
def test_the_packages_know_only_whom_they_may(file):
    assert not libraries(file) & NEVER[file.split("/")[0]]


@pytest.mark.parametrize("file", FILES)
def test_sockets_and_http_stay_in_their_rooms(file):
    rooms = {file, *(str(folder) for folder in Path(file).parents)}
    assert not [library for library in libraries(file) & set(ONLY) if not rooms & set(ONLY[library])]


@pytest.mark.parametrize("file", PURE)
def test_a_pure_file_is_there_and_imports_nothing_heavy(file):
    assert (ROOT / file).is_file(), f"{file} is gone or renamed; the rule about it must move with it"
    assert not libraries(file) & set(HEAVY)


@pytest.mark.parametrize("file", MACHINES)
def test_a_state_machine_has_no_clock_and_no_io(file):
    assert not libraries(file) & CLOCKS_AND_IO


def test_pure_files_load_nothing_heavy_through_what_they_import():
    modules = [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in PURE]
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = [library for library in {HEAVY} if library in sys.modules]\n"
        "    if heavy: sys.exit(f'importing {name} imports {heavy}')\n"
    )
    run = subprocess.run([sys.executable, "-c", program, *modules], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("file", BARE)
def test_what_runs_on_a_bare_machine_needs_torch_and_transformers_only(file):
    assert (ROOT / file).is_file(), f"{file} is gone or renamed; the rule about it must move with it"
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
    assert "goodspeed/messages.py" in reached("goodspeed/generation.py")
    assert "goodspeed/noise.py" in reached("goodspeed/rejection.py")


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("import verify_node.core", "verify_node"),
        ("from verify_node import core", "verify_node"),
        ("def late():\n    import zmq.asyncio as z", "zmq"),
        ("if TYPE_CHECKING:\n    from torch import Tensor", "torch"),
        ("importlib.import_module('zmq')", "zmq"),
        ("from .engine import pages", "goodspeed"),
    ],
)
def test_every_form_of_import_is_seen(text, library):
    assert library in {name.split(".")[0] for name in imports(ast.parse(text), "goodspeed/x.py")}
