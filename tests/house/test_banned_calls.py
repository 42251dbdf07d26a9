"""Bytes never become code and text never becomes a command, anywhere in the source.

`make check` has ruff refuse the calls that `pyproject.toml` bans; an exception says why on its line, and one that is no
longer needed is an error too (RUF100). Here stands what ruff does not see, and that it sees the rest.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("goodspeed", "draft_node", "verify_node")
ROOMS = (*PACKAGES, "experiments", "training", "tests", "docker")

IN_PYTHON = re.compile(
    r"\b(?:recv|send)_pyobj\b|\b__import__\("
    r"|\b(?:trust_remote_code|allow_pickle)\b(?!=False)|\bweights_only\b(?!=True)"
)
"""Pickle by other names, and keyword arguments that may have one value only."""

IN_SCRIPTS = re.compile(
    r"\b(pickle|marshal|shelve|dill|joblib|torch\.load|torch\.hub|(recv|send)_pyobj)\b"
    r"|trust_remote_code(?!\s*=\s*False)|allow_pickle(?!\s*=\s*False)|(?<![\w.-])(eval(?=[\s(])|exec\()"
    r"|\b(curl|wget)\b[^\n]*\|\s*(ba|da)?sh\b"
)
"""The calls that are banned in shell scripts and Dockerfiles, and in the programs that stand in them."""

PRIVATE_BUT_NEEDED = {
    (
        "goodspeed/engine/openvino/folder.py",
        "openvino._offline_transformations.paged_attention_transformation",
    ): "OpenVINO has it under a public name in C++ only",
}
"""(file, what): why there is no public way."""

REFUSED = """\
import pickle
from marshal import loads
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
os.system('ls')
from os import system as run
os.popen(text)
subprocess.run(words, shell=True)
subprocess.getoutput(text)
asyncio.create_subprocess_shell(text)
yaml.load(text, Loader=yaml.SafeLoader)
from yaml import unsafe_load
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


def test_ruff_sees_every_other_way_to_run_bytes() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--output-format=json", "--select=S,TID251", "--ignore=S404,S603"]
    ended = subprocess.run(
        [*command, "--stdin-filename=goodspeed/x.py", "-"],
        cwd=ROOT, input=IMPORTS + REFUSED + ALLOWED, capture_output=True, text=True,
    )  # fmt: skip
    found = {error["location"]["row"] for error in json.loads(ended.stdout)}
    assert found == {*range(2, 2 + len(REFUSED.splitlines()))}, ended.stdout


def test_nor_does_anything_that_ruff_does_not_see() -> None:
    paths = files(*ROOMS)
    assert {path.relative_to(ROOT).parts[0] for path in paths} >= {*PACKAGES, "experiments", "tests"}
    found = {str(path.relative_to(ROOT)): IN_PYTHON.findall(path.read_text("utf-8")) for path in paths}
    assert {name: words for name, words in found.items() if words} == {
        "tests/draft_node/parsing/test_coercion.py": ["__import__("] * 2  # a model's text, which stays one
    }


@pytest.mark.parametrize(
    "text",
    [
        "load(name, trust_remote_code=True)",
        "load(name, trust_remote_code=option)",
        "options = {'trust_remote_code': True}",
        "numpy.load(path, allow_pickle=0)",
        "load(path, weights_only=False)",
        "send = socket.send_pyobj",
        "__import__(name)",
    ],
)
def test_every_such_way_is_seen(text: str) -> None:
    assert IN_PYTHON.search(text)


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
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in imported(node)
        if name.split(".")[0] not in (*PACKAGES, "__future__")
    }
    private = {(file, name) for file, name in names if any(part.startswith("_") for part in name.split("."))}
    assert private == set(PRIVATE_BUT_NEEDED)


def test_scripts_run_nothing_that_comes_from_elsewhere() -> None:
    paths = [ROOT / "Makefile", ROOT / ".ci/run", *(path for path in (ROOT / "docker").rglob("*") if path.is_file())]
    assert {"Makefile", "run", "try.sh", "verify.Dockerfile"} <= {path.name for path in paths}
    assert not [(path.name, found) for path in paths for found in IN_SCRIPTS.findall(path.read_text("utf-8"))]


@pytest.mark.parametrize(
    "text",
    [
        "python3 -c 'import pickle'",
        'eval "$(cat file)"',
        "python -c 'exec(x)'",
        "load(name, trust_remote_code=True)",
        "curl https://example.org/install | sh",
        "wget -O - https://example.org/install | bash",
    ],
)
def test_every_way_to_run_bytes_is_seen_in_scripts(text: str) -> None:
    assert IN_SCRIPTS.search(text)


@pytest.mark.parametrize("text", ["exec goodspeed-verify", "trust_remote_code=False", "curl -s localhost | python3 -c"])
def test_harmless_scripts_are_left_alone(text: str) -> None:
    assert not IN_SCRIPTS.search(text)
