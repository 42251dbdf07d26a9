"""A policy of a user's own: found by its name, made like any other, and checked whenever it answers."""

import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from goodspeed.errors import ConfigError, PolicyError, UnknownPolicyError
from goodspeed.fair.policies import ClientState, Policy, create, load, names
from goodspeed.fair.policies.registry import POLICIES

ROOT = Path(__file__).parents[3]

MINE = """
from __future__ import annotations

from dataclasses import dataclass

from goodspeed.fair.policies import ClientState

@dataclass
class Mine:
    most: int = 3

    def allocate(self, clients: list[ClientState], budget: int) -> list[int]:
        return [min(self.most, budget // len(clients), client.max_length) for client in clients]


class Equal(Mine):
    fairness = 0

class Unfair(Mine):
    fairness = -1

class Plain:
    pass

class Broken:
    def __init__(self):
        raise RuntimeError("no table")
"""

CLIENTS = [ClientState(0.9, 1.0, max_length=4), ClientState(0.2, 1.0)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a module; what is imported and registered there is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(POLICIES, "_known", dict(POLICIES._known))
    (tmp_path / "own_policies.py").write_text(MINE)
    yield tmp_path
    for name in [name for name, module in sys.modules.items() if "own_policies" in name]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["own_policies:Mine", "./own_policies.py:Mine"])
def test_a_class_in_a_file_of_ones_own_is_a_policy_like_any_other(name: str) -> None:
    with pytest.raises(UnknownPolicyError):
        create(name)  # only `load` imports, and only a command line calls it
    load(name)
    assert name in names()
    assert create(name).allocate(CLIENTS, 100) == [3, 3]
    load(name)  # again: what a command line does twice
    with pytest.raises(ConfigError, match="has no option 'most'; it has no options"):
        create(name, most=1)


def test_a_class_may_name_its_fairness() -> None:
    load("own_policies:Mine")
    load("own_policies:Equal")
    assert [vars(create(name))["fairness"] for name in ("own_policies:Mine", "own_policies:Equal")] == [1.0, 0.0]


def test_a_file_by_an_absolute_path_needs_no_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    load(name := f"{folder}/own_policies.py:Mine")
    assert create(name).allocate(CLIENTS, 4) == [2, 2]


def test_the_current_folder_hides_no_library(folder: Path) -> None:
    (folder / "json.py").write_text("raise RuntimeError('not this one')")
    code = "from goodspeed.fair.policies import load; load('own_policies:Mine'); import json; print(json.__file__)"
    program = f"import sys; sys.path[0] = {str(ROOT)!r}; {code}"
    told = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert str(folder) not in told.stdout, told.stderr
    assert told.returncode == 0, told.stderr


def test_only_command_lines_have_a_rule_imported() -> None:
    rooms = ("goodspeed", "verify_node", "draft_node", "experiments")
    texts = {path: path.read_text("utf-8") for room in rooms for path in (ROOT / room).rglob("*.py")}
    calls = ("policies.load(", "ORDERS.load(", "ADMISSION.load(", "SOURCES.load(", "drafting.custom_source import")
    asking = {path: [call for call in calls if call in text] for path, text in texts.items()}
    assert {str(path.relative_to(ROOT)): found for path, found in asking.items() if found} == {
        "experiments/harness/experiment.py": ["policies.load("],
        "goodspeed/app/demo/options.py": ["policies.load("],
        "draft_node/process/assembly.py": ["drafting.custom_source import"],
        "goodspeed/drafting/custom_source.py": ["SOURCES.load("],
        "verify_node/config.py": ["policies.load(", "ORDERS.load(", "ADMISSION.load("],
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mine.py", "mine.py names no class; give it after a colon, as in mine.py:Mine"),
        ("no_such_module:Mine", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("own_policies:Yours", r"own_policies \(/\S+/own_policies.py\) has no class 'Yours'"),
        ("own_policies:Plain", r"own_policies:Plain has no method allocate\(clients, budget\)"),
        ("own_policies:Unfair", "own_policies:Unfair: fairness is -1; it must lie within 0"),
        (
            "own_policies:Broken",
            r"own_policies:Broken cannot be created: RuntimeError: no table \(/\S+/own_policies.py, line \d+\)$",
        ),
    ],
)
def test_what_cannot_be_a_policy_is_refused_by_name(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        loaded(name)


def loaded(name: str) -> Policy:
    load(name)
    return create(name)


def more_by_permitting_it(clients: list[ClientState], budget: int) -> object:
    clients[0].max_length = budget
    return [budget, 0]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda clients, budget: [budget // 0], "failed: ZeroDivisionError"),
        (None, "returned None; it must return a list of whole numbers"),
        ([1.5, 1.0], r"returned \[1.5, 1.0\]; it must return a list of whole numbers"),
        ([1], "returned 1 lengths for 2 clients"),
        ([1, 1, 1], "returned 3 lengths for 2 clients"),
        ([1, -1], "returned the length -1 for client 1"),
        ([5, 0], "returned the length 5 for client 0; it must lie within 0 and its max_length, 4"),
        (more_by_permitting_it, "returned the length 10 for client 0; it must lie within 0 and its max_length, 4"),
        ([4, 7], "returned 11 tokens in all; the budget is 10"),
    ],
)
def test_a_wrong_answer_is_an_error_that_names_the_policy(answer, told, monkeypatch) -> None:
    load("own_policies:Mine")
    allocate = answer if callable(answer) else lambda *asked: answer
    monkeypatch.setattr(sys.modules["own_policies"].Mine, "allocate", lambda _, *asked: allocate(*asked))
    with pytest.raises(PolicyError, match=f"the policy own_policies:Mine {told}"):
        create("own_policies:Mine").allocate(deepcopy(CLIENTS), 10)
