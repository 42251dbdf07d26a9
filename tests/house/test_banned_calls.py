"""Bytes never become code and text never becomes a command, anywhere in the source. Each exception is listed with its
reason, and one that is no longer needed is an error too."""

import ast
from pathlib import Path

import pytest

from tests.house.banned_calls import found_in, found_in_script

ROOT = Path(__file__).parents[2]
PACKAGES = ("goodspeed", "draft_node", "verify_node")
ROOMS = (*PACKAGES, "experiments", "training", "tests", "docker")

BANNED_BUT_NEEDED = {
    (
        "goodspeed/registry.py",
        "import_module(name)",
    ): "what a person names on the command line; test_own.py and test_custom.py have who may ask for it",
    ("goodspeed/app/daemons.py", "import_module(daemon.module)"): "one of the three modules of the table there",
    ("goodspeed/app/fleet/cli.py", "import_module(DAEMONS['verify'].module)"): "of the same table",
    ("goodspeed/app/fleet/actors.py", "import_module(HOSTING)"): "a constant beside that table",
    ("experiments/harness/forks.py", "runpy"): "runs nodes and benchmarks in forks",
    ("experiments/harness/forks.py", "runpy.run_module"): "a module that tests and benchmarks name",
    ("experiments/harness/forks.py", "import_module(holder)"): "the same",
    (
        "experiments/benchmarks/rivals/worker.py",
        "import_module(f'{ROOM}.{module}')",
    ): "a module of that room, by the benchmark's own table",
    ("tests/experiments/test_pictures.py", "import_module(f'experiments.{name}')"): "names of files of ours",
    ("tests/experiments/served/test_notebooks.py", "exec"): "cells of our own notebooks, as Jupyter runs them",
    ("tests/experiments/served/test_notebooks.py", "eval"): "the same",
    ("tests/experiments/served/test_notebooks.py", "compile"): "the same",
}
"""(file, what): why it can do no harm there."""


PRIVATE_BUT_NEEDED = {
    (
        "goodspeed/engine/openvino/folder.py",
        "openvino._offline_transformations.paged_attention_transformation",
    ): "OpenVINO has it under a public name in C++ only",
}
"""(file, what): why there is no public way."""


def python_files(*rooms: str) -> dict[str, ast.Module]:
    """Every file of these rooms, by its name in the repository."""
    files = sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in files}


def test_bytes_never_become_code() -> None:
    files = python_files(*ROOMS)
    assert {file.split("/")[0] for file in files} >= {*PACKAGES, "experiments", "tests"}
    found = {(file, what): f"{file}:{line}" for file, tree in files.items() for line, what in found_in(tree)}
    assert set(found) == set(BANNED_BUT_NEEDED), found


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
        (file, name)
        for file, tree in python_files(*PACKAGES).items()
        for node in ast.walk(tree)
        for name in imported(node)
        if name.split(".")[0] not in (*PACKAGES, "__future__")
    }
    private = {(file, name) for file, name in names if any(part.startswith("_") for part in name.split("."))}
    assert private == set(PRIVATE_BUT_NEEDED)


def test_scripts_run_nothing_that_comes_from_elsewhere() -> None:
    paths = [ROOT / "Makefile", ROOT / ".ci/run", *(path for path in (ROOT / "docker").rglob("*") if path.is_file())]
    assert {"Makefile", "run", "try.sh", "verify.Dockerfile"} <= {path.name for path in paths}
    assert not [(path.name, found) for path in paths for found in found_in_script(path.read_text("utf-8"))]


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import dill as d",
        "from marshal import loads",
        "from joblib import load",
        "import cloudpickle.compat",
        "importlib.import_module('shelve')",
        "importlib.import_module(name)",
        "from importlib import import_module\nimport_module(f'{x}.y')",
        "__import__(name)",
        "torch.load(path)",
        "import torch as t\nt.load(path)",
        "from torch import load",
        "from torch import hub",
        "torch.hub.load('a/b', 'c')",
        "getattr(torch, 'load')(path)",
        "read = torch.load",
        "eval(text)",
        "exec(text)",
        "list(map(eval, texts))",
        "import builtins\nbuiltins.exec(text)",
        "from builtins import eval as harmless",
        "compile(text, 'x', 'exec')",
        "socket.recv_pyobj()",
        "socket.send_pyobj(x)",
        "send = socket.send_pyobj",
        "load(name, trust_remote_code=True)",
        "load(name, trust_remote_code=option)",
        "options = {'trust_remote_code': True}",
        "numpy.load(path, allow_pickle=True)",
        "numpy.load(path, allow_pickle=0)",
        "load(path, weights_only=False)",
        "import os\nos.system('ls')",
        "from os import system as run\nrun(text)",
        "os.popen(text)",
        "subprocess.run(words, shell=True)",
        "subprocess.run('ls -l')",
        "subprocess.Popen(f'ls {folder}')",
        "from subprocess import check_output\ncheck_output(args='ls ' + folder)",
        "subprocess.run(' '.join(words))",
        "subprocess.run('ls %s' % folder)",
        "subprocess.getoutput(text)",
        "asyncio.create_subprocess_shell(text)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "from yaml import unsafe_load",
    ],
)
def test_every_way_to_run_bytes_is_seen(text: str) -> None:
    assert found_in(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "load(name, trust_remote_code=False)",
        "re.compile(text)",
        "numpy.load(path)",
        "numpy.load(path, allow_pickle=False)",
        "importlib.import_module('goodspeed.app.cli')",
        "subprocess.run([sys.executable, '-c', program])",
        "subprocess.run(words, shell=False)",
        "yaml.safe_load(text)",
        "import torch.nn",
        "decoder.load(path)",
        "'''eval(text)'''",
    ],
)
def test_harmless_code_is_left_alone(text: str) -> None:
    assert not found_in(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "python3 -c 'import pickle'",
        "eval $command",
        'eval "$(cat file)"',
        "python -c 'exec(x)'",
        "python -c 'eval (x)'",
        "load(name, trust_remote_code=True)",
        "curl https://example.org/install | sh",
        "wget -O - https://example.org/install | bash",
        "python -c 'socket.recv_pyobj()'",
    ],
)
def test_every_way_to_run_bytes_is_seen_in_scripts(text: str) -> None:
    assert found_in_script(f"#!/bin/sh\n{text}\n")


@pytest.mark.parametrize(
    "text", ["exec goodspeed-verify", "trust_remote_code=False", "curl -s localhost | python3 -c x"]
)
def test_harmless_scripts_are_left_alone(text: str) -> None:
    assert not found_in_script(text)
