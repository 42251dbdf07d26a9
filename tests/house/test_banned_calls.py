"""Bytes never become code and text never becomes a command, anywhere in the source.

`make check` has ruff refuse the calls that `pyproject.toml` bans. Here stand the exceptions, each with its reason, what
ruff does not see, and that it sees the rest.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("goodspeed", "draft_node", "verify_node")
ROOMS = (*PACKAGES, "experiments", "training", "tests", "docker")

IMPORT = "from importlib import import_module"
NOTEBOOKS = "tests/experiments/served/test_notebooks.py"
BANNED_BUT_NEEDED = {  # (file, the code of the line): why it can do no harm there
    # What a person names on the command line; test_own.py has who may ask for it.
    ("goodspeed/registry.py", "return importlib.import_module(name)"),
    ("goodspeed/app/fleet/cli.py", IMPORT),  # the verify node's settings
    # Goodspeed has no other way to a node.
    ("goodspeed/app/fleet/actors.py", 'hosting = importlib.import_module("verify_node.hosting")'),
    ("experiments/harness/forks.py", "import runpy"),  # runs nodes and benchmarks in forks
    ("experiments/harness/forks.py", IMPORT),  # modules that tests and benchmarks name
    ("experiments/benchmarks/rivals/worker.py", IMPORT),  # a module of that room, by the benchmark's own table
    ("tests/experiments/test_pictures.py", IMPORT),  # names of files of ours
    # Cells of our own notebooks, as Jupyter runs them.
    (NOTEBOOKS, 'exec(compile(ast.Module(body, []), "<cell>", "exec"), names)'),
    (NOTEBOOKS, 'value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)'),
}

IN_PYTHON = re.compile(  # pickle by other names, and keyword arguments that may have one value only
    r"\b(?:recv|send)_pyobj\b"
    r"|\b(?:trust_remote_code|allow_pickle)\b(?!=False)|\bweights_only\b(?!=True)"
)

IN_SCRIPTS = re.compile(
    r"\b(pickle|marshal|shelve|dill|joblib|torch\.load|torch\.hub|(recv|send)_pyobj)\b"
    r"|trust_remote_code(?!\s*=\s*False)|allow_pickle(?!\s*=\s*False)|(?<![\w.-])(eval(?=[\s(])|exec\()"
    r"|\b(curl|wget)\b[^\n]*\|\s*(ba|da)?sh\b"
)
"""The calls that are banned in shell scripts and Dockerfiles, and in the programs that stand in them."""

PRIVATE_BUT_NEEDED = {  # (file, what): why there is no public way
    # OpenVINO has it under a public name in C++ only.
    ("goodspeed/engine/openvino/folder.py", "openvino._offline_transformations.paged_attention_transformation"),
}

RULES = {"S101", "S102", "S301", "S302", "S307", "S506", "S602", "S604", "S605", "TID251"}
"""Those of ruff that our settings select for this."""

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
BANNED = {name.rpartition(".")[2] for name in SETTINGS["flake8-tidy-imports"]["banned-api"]} | {"__import__"}
"""The last words of names that ruff bans."""

BUILTINS = {"eval", "exec", "compile", "__import__"}  # Ruff sees only calls of the first two
COMMANDS = {f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")}
"""Take a list of words, never one text."""

REFUSED = """\
import pickle
pickle.loads(text)
from marshal import loads
loads(text)
import dill as d
from joblib import load
import cloudpickle.compat
import runpy
from importlib import import_module
importlib.import_module(name)
torch.load(path)
t.load(path)
read = torch.load
from torch import load
from torch import hub
torch.hub.load('a/b', 'c')
eval(text)
exec(text)
builtins.exec(text)
from builtins import eval as harmless
os.system('ls')
from os import system as run
os.popen(text)
subprocess.run(words, shell=True)
start(words, shell=True)
subprocess.getoutput(text)
asyncio.create_subprocess_shell(text)
yaml.load(text, Loader=yaml.SafeLoader)
yaml.load(text)
yaml.UnsafeLoader(text)
from yaml import unsafe_load
assert words
"""
ALLOWED = """\
model.eval()
re.compile(text)
numpy.load(path, allow_pickle=False)
subprocess.run([sys.executable, '-c', program])
yaml.safe_load(text)
import torch.nn
decoder.load(path)
"""
IMPORTS = "import asyncio, builtins, importlib, numpy, os, re, subprocess, sys, torch, yaml; import torch as t\n"


def files(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py") if path != Path(__file__))


def by_ruff(*words: str, text: str | None = None) -> list[tuple[Path, int, str]]:
    """(file, line, rule) of what our settings of ruff ban, also where a comment silences it."""
    command = [sys.executable, "-m", "ruff", "check", "--ignore-noqa", "--no-cache", "--output-format=json", *words]
    ended = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True)
    errors = [error for error in json.loads(ended.stdout) if re.fullmatch(r"S\d+|TID251", error["code"] or "")]
    return [(Path(error["filename"]), error["location"]["row"], error["code"]) for error in errors]


def code_of(path: Path, line: int) -> tuple[str, str]:
    """(file, the code of the line) as in BANNED_BUT_NEEDED."""
    return str(path.relative_to(ROOT)), path.read_text("utf-8").splitlines()[line - 1].partition("  #")[0].strip()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def unseen(tree: ast.Module) -> Iterator[int]:
    """The lines of what ruff does not see."""
    meant: dict[str, str] = {}  # names that are imported from subprocess, or are it
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                meant |= {name.asname: name.name for name in names if name.asname}
            case ast.ImportFrom("subprocess", names):
                meant |= {name.asname or name.name: f"subprocess.{name.name}" for name in names}
    for node in ast.walk(tree):
        match node:
            case ast.Name(name) if name in BUILTINS:
                yield node.lineno
            case ast.Call(ast.Name("getattr"), [_, ast.Constant(name), *_]) if name in BANNED:
                yield node.lineno
            case ast.Call(function, arguments, keywords):
                owner, dot, name = ast.unparse(function).partition(".")
                given = [*arguments[:1], *(word.value for word in keywords if word.arg == "args")]
                if meant.get(owner, owner) + dot + name in COMMANDS and any(map(is_text, given)):
                    yield node.lineno


def is_text(node: ast.expr) -> bool:
    """True if an expression is a text for certain: written out, put together, or formatted."""
    match node:
        case ast.BinOp(left, ast.Add() | ast.Mod(), right):
            return is_text(left) or is_text(right)
        case ast.Constant(str()) | ast.JoinedStr() | ast.Call(ast.Attribute(ast.Constant(str()), "join" | "format")):
            return True
    return False


def test_bytes_never_become_code() -> None:
    found = {code_of(path, line) for path, line, _ in by_ruff(*ROOMS)}
    assert found == BANNED_BUT_NEEDED


def test_nor_do_they_where_ruff_does_not_see_it() -> None:
    paths = files(*ROOMS)
    assert {path.relative_to(ROOT).parts[0] for path in paths} >= {*PACKAGES, "experiments", "tests"}
    found = {code_of(path, line) for path in paths for line in unseen(parsed(path))}
    assert found <= BANNED_BUT_NEEDED
    assert not [path for path in paths if IN_PYTHON.search(path.read_text("utf-8"))]


def test_ruff_sees_every_other_way_to_run_bytes() -> None:
    found = by_ruff("--stdin-filename=goodspeed/x.py", "-", text=IMPORTS + REFUSED + ALLOWED)
    assert {line for _, line, _ in found} == {*range(2, 2 + len(REFUSED.splitlines()))}, found
    assert {rule for _, _, rule in found} == RULES


@pytest.mark.parametrize(
    "text",
    [
        "compile(text, 'x', 'exec')",
        "run = eval",
        "list(map(exec, texts))",
        "__import__(name)",
        "getattr(torch, 'load')(path)",
        "getattr(builtins, '__import__', None)",
        "subprocess.run('ls -l')",
        "subprocess.Popen(f'ls {folder}')",
        "from subprocess import check_output as ask\nask(args='ls ' + folder)",
        "import subprocess as s\ns.call(' '.join(words))",
        "subprocess.run('ls %s' % folder)",
    ],
)
def test_what_ruff_does_not_see_is_seen(text: str) -> None:
    assert list(unseen(ast.parse(text)))


@pytest.mark.parametrize("text", [*ALLOWED.splitlines(), "getattr(model, 'eval_batch')", "run('x')"])
def test_harmless_code_is_left_alone(text: str) -> None:
    assert not list(unseen(ast.parse(text)))


SEEN = [
    (IN_PYTHON, "load(name, trust_remote_code=True)"),
    (IN_PYTHON, "load(name, trust_remote_code=option)"),
    (IN_PYTHON, "options = {'trust_remote_code': True}"),
    (IN_PYTHON, "numpy.load(path, allow_pickle=0)"),
    (IN_PYTHON, "load(path, weights_only=False)"),
    (IN_PYTHON, "send = socket.send_pyobj"),
    (IN_SCRIPTS, "python3 -c 'import pickle'"),
    (IN_SCRIPTS, 'eval "$(cat file)"'),
    (IN_SCRIPTS, "python -c 'exec(x)'"),
    (IN_SCRIPTS, "load(name, trust_remote_code=True)"),
    (IN_SCRIPTS, "curl https://example.org/install | sh"),
    (IN_SCRIPTS, "wget -O - https://example.org/install | bash"),
]
HARMLESS = "exec goodspeed-verify; load(trust_remote_code=False); curl -s localhost | python3 -c"


def test_every_such_way_is_seen_in_text_and_nothing_else() -> None:
    assert not [text for pattern, text in SEEN if not pattern.search(text)]
    assert not IN_SCRIPTS.search(HARMLESS)


def imported(node: ast.AST) -> list[str]:
    """Names of modules that a statement imports, and of what it imports from them."""
    match node:
        case ast.Import(names):
            return [name.name for name in names]
        case ast.ImportFrom(module, names):
            return [f"{module}.{name.name}" for name in names]
    return []


def test_private_modules_of_other_packages_are_not_relied_on() -> None:
    names = {
        (str(path.relative_to(ROOT)), name)
        for path in files(*PACKAGES)
        for node in ast.walk(parsed(path))
        for name in imported(node)
        if name.split(".")[0] not in (*PACKAGES, "__future__")
    }
    private = {(file, name) for file, name in names if any(part.startswith("_") for part in name.split("."))}
    assert private == PRIVATE_BUT_NEEDED


def test_scripts_run_nothing_that_comes_from_elsewhere() -> None:
    paths = [ROOT / "Makefile", ROOT / ".ci/run", *(path for path in (ROOT / "docker").rglob("*") if path.is_file())]
    assert {"Makefile", "run", "try.sh", "verify.Dockerfile"} <= {path.name for path in paths}
    assert not [(path.name, found) for path in paths for found in IN_SCRIPTS.findall(path.read_text("utf-8"))]
