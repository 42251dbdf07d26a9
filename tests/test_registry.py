"""Orders and admission policies that are not ours: those of docs/POLICY.md, and ones that do wrong."""

import logging
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goodspeed.errors import ConfigError
from goodspeed.registry import Registry
from goodspeed.slo.admit import admit
from goodspeed.slo.feasible import Ask
from goodspeed.slo.policies import ADMISSION, OwnPolicy
from tests.fakes import Desk
from verify_node.config import VerifyConfig
from verify_node.scheduler.orders.base import AGING_S, ORDERS, Job, OwnOrder

ROOT = Path(__file__).parents[1]
NAMES = ("cheapest", "dp", "edf", "none")
ASKS = [Ask(1.0, 80, None), Ask(2.0, 30, None), Ask(3.0, 200, None, promised=True)]
DOCUMENT = (ROOT / "docs/POLICY.md").read_text("utf-8").partition("# An order or an admission policy")[2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The document's package, installed; returns its folder."""
    [module], [project] = (re.findall(rf"```{kind}\n(.*?)```", DOCUMENT, re.DOTALL) for kind in ("python", "toml"))
    (tmp_path / "rules.py").write_text(module)
    info = tmp_path / "rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rules\nVersion: 1.0\n")
    groups: dict[str, dict[str, str]] = tomllib.loads(project)["project"]["entry-points"]
    lines = [line for group, rules in groups.items() for line in (f"[{group}]", *map(" = ".join, rules.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    registries: tuple[Registry[Any], ...] = (ORDERS, ADMISSION)
    for registry in registries:
        monkeypatch.setattr(registry, "_known", dict(registry._known))
    yield tmp_path
    sys.modules.pop("rules", None)


def job(number: int, tokens: float = 1.0, *, waits_since: float | None = None) -> Job:
    return Job(job_id=number, arrived_at=float(number), remaining_tokens=tokens, waits_since=waits_since)


def test_the_rules_of_the_document_are_choices_of_the_command_line(package: Path) -> None:
    command = [sys.executable, "-m", "verify_node", "--model", "none", "--admission", "cheapest", "--order", "nobody"]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    told = "goodspeed-verify: no order is named 'nobody'; choose one of: fcfs, laps, shortest; or name one of your own"
    assert said.stderr.startswith(told)


def test_the_rules_of_the_document_may_be_named_in_their_file(package: Path) -> None:
    file = package / "rules.py"
    config = VerifyConfig(model="none", order=f"{file}:Shortest", admission="rules:cheapest")
    assert (config.core.order, config.core.admits) == (f"{file}:Shortest", "rules:cheapest")
    assert [one.job_id for one in ORDERS.find(config.order)().rank([job(1, 30.0), job(2, 10.0)], 0.0)] == [2, 1]
    assert admit(ASKS, tokens_in=lambda seconds: 100 * seconds, policy=config.core.admits) == [False, True, True]
    refused: tuple[tuple[Any, str], ...] = (
        ({"order": f"{file}:Longest"}, "has no class 'Longest'; name the class after the colon"),
        ({"admission": "rules:dearest"}, "has no function 'dearest'; name the function after the colon"),
        ({"admission": "dearest"}, r"no admission policy is named 'dearest'; .* as MODULE:FUNCTION or FILE.py:FUNC"),
        ({"admission": "rules:Shortest"}, r"policy rules:Shortest is no function of \(ordered, now\)"),
    )
    for wrong, told in refused:
        with pytest.raises(ConfigError, match=told):
            VerifyConfig(model="none", **wrong)


def test_an_error_says_what_was_imported(package: Path) -> None:
    (bare := package / "bare").mkdir()
    for module, origin in (("sys", "a part of Python"), ("bare", bare), ("rules", package / "rules.py")):
        with pytest.raises(ConfigError, match=re.escape(f"{module} ({origin}) has no function 'dearest'; name")):
            ADMISSION.load(f"{module}:dearest")


def test_names_import_nothing(package: Path) -> None:
    (package / "rules.py").write_text("import a_missing_library")
    assert ({"fcfs", "laps", "shortest"} - {*ORDERS.names}, ADMISSION.names) == (set(), NAMES)
    told = r"the order shortest: rules:Shortest cannot be imported: .*a_missing_library"
    with pytest.raises(ConfigError, match=told):
        ORDERS.find("shortest")


def test_the_order_of_the_document_ranks_and_nobody_starves(package: Path) -> None:
    order = ORDERS.find("shortest")()
    jobs = [job(1, 30.0), job(2, 10.0), job(3, 99.0, waits_since=0.0), job(4, 20.0)]
    assert [one.job_id for one in order.rank(jobs, AGING_S)] == [2, 4, 1, 3]
    assert [one.job_id for one in order.rank(jobs, AGING_S + 1.0)] == [3, 2, 4, 1]
    assert not order.yields(jobs[0], jobs[1], 0.0)


def test_the_order_of_the_document_runs_in_a_verify_node(package: Path) -> None:
    desk = Desk(order="shortest", num_pages=4)
    desk.hello()
    for number in range(1, 5):
        desk.open(number=number, max_tokens=20)
    for _ in range(200):
        desk.now += 0.01
        desk.round()
    assert all(session.finished for session in desk.core.sessions.values())


def test_the_admission_policy_of_the_document_prefers_short_prompts(package: Path) -> None:
    assert admit(ASKS, tokens_in=lambda seconds: 100 * seconds, policy="dp") != [False, True, True]
    assert admit(ASKS, tokens_in=lambda seconds: 100 * seconds, policy="cheapest") == [False, True, True]


@pytest.mark.parametrize(
    ("rank", "what"),
    [(lambda jobs: jobs[1:], "each of the 3 once"), (lambda jobs: [jobs[0]] * 3, "once"), (lambda jobs: 1 / 0, "Zero")],
)
def test_an_order_that_does_wrong_ranks_by_arrival(rank, what, caplog):
    class Wrong:
        def rank(self, jobs: Any, now: float) -> Any:
            return rank(jobs)

    order = OwnOrder("wrong", Wrong)
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            assert [one.job_id for one in order.rank([job(3), job(1), job(2)], 0.0)] == [1, 2, 3]
    assert [record.getMessage()[-2] for record in caplog.records] == ["1", "2", "4"]
    assert all("the order wrong failed" in line.getMessage() and what in line.getMessage() for line in caplog.records)


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        (lambda ordered, now: [True] * len(ordered), "not feasible"),
        (lambda ordered, now: [False] * len(ordered), "broke a promise"),
        (lambda ordered, now: [True], "1 answers to 2 requests"),
        (lambda ordered, now: [0, 1], "it answered 0; each answer must be True or False"),
        (lambda ordered, now: None, "it returned None; it must return a list of True and False"),
        (lambda ordered, now: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_an_admission_policy_that_does_wrong_promises_nothing_new(policy, what, caplog, monkeypatch):
    monkeypatch.setitem(ADMISSION._known, "wrong", OwnPolicy("wrong", policy))
    asks = [Ask(1.0, 60, None), Ask(1.0, 60, None, promised=True)]
    with caplog.at_level(logging.ERROR):
        assert admit(asks, tokens_in=lambda seconds: 100 * seconds, policy="wrong") == [False, True]
    [record] = caplog.records
    assert "the admission policy wrong failed" in record.getMessage()
    assert what in record.getMessage()


def test_an_admission_policy_may_answer_with_numpys_bools(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = OwnPolicy("arrays", lambda ordered, now: np.array([ask.deadline_s > 1.0 for ask in ordered]))  # type: ignore[arg-type, return-value]
    monkeypatch.setitem(ADMISSION._known, "arrays", policy)
    asks = [Ask(1.0, 60, None), Ask(2.0, 60, None)]
    admitted = admit(asks, tokens_in=lambda seconds: 100 * seconds, policy="arrays")
    assert [one is True for one in admitted] == [False, True]


def test_an_order_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(ConfigError, match="the order mine cannot be created: ZeroDivisionError"):
        OwnOrder("mine", lambda: 1 // 0)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("rank", [None, lambda self, jobs: jobs, lambda self, jobs, now, more: jobs])
def test_an_order_without_such_a_method_is_refused(rank: Any) -> None:
    with pytest.raises(ConfigError, match=r"the order mine has no method rank\(jobs, now\)"):
        OwnOrder("mine", type("Mine", (), {"rank": rank}))


@pytest.mark.parametrize("wrong", [5, list, lambda ordered: [], lambda ordered, now, more: []])
def test_an_admission_policy_of_other_parameters_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"the admission policy mine is no function of \(ordered, now\)"):
        OwnPolicy("mine", wrong)
