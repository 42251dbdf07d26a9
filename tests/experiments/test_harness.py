"""The frame of experiments: settings from a file, results on disk, goals for the shipped settings."""

import json
import re
from dataclasses import dataclass, field

import pytest
from matplotlib.figure import Figure

from experiments.__main__ import experiments
from experiments.harness.experiment import HERE, Comparing, Finding, Outcome, new_figure, run
from experiments.harness.runner import run_all
from goodspeed.fair import policies
from goodspeed.fair.policies.registry import POLICIES


@dataclass(frozen=True)
class Size:
    users: int


@dataclass(frozen=True)
class Config:
    rounds: int
    alphas: tuple[float, ...]
    sizes: dict[str, Size] = field(default_factory=dict)


SETTINGS = """
[full]
rounds = 600
alphas = [0.5, 0.9]
[quick]
rounds = 60
alphas = [0.5]
"""


def experiment(config):
    rows = [{"alpha": alpha, "rounds": config.rounds} for alpha in config.alphas]
    findings = [Finding("utility", 2.0, paper=4.0, wanted="at least 3", reached=False), Finding("other", 1.0)]
    curves = [{"round": number, "goodput": 1.0 / number} for number in (1, 2)]
    return Outcome(rows=rows, curves=curves, findings=findings, facts={"optimum": 2.5}, notes=["seen so"])


def draw(config, results):
    figure = new_figure()
    axes = figure.subplots()
    axes.plot([row["alpha"] for row in results.rows])
    axes.plot([row["goodput"] for row in results.curves])
    return figure


@pytest.fixture(autouse=True)
def shipped(tmp_path, monkeypatch):
    """The shipped settings of the experiment `some`; what a test registers is forgotten."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "some.toml").write_text(SETTINGS)
    monkeypatch.setattr("experiments.harness.experiment.HERE", tmp_path)
    monkeypatch.setattr(POLICIES, "_known", dict(POLICIES._known))


def start(tmp_path, *arguments, config=Config, does=None):
    settings = tmp_path / "some.toml"
    if not settings.exists():
        settings.write_text(SETTINGS)
    words = [f"--config={settings}", f"--out={tmp_path / 'out'}", *arguments]
    return run("some", "About.", does or experiment, draw, config, words)


def test_results_are_written_and_the_last_line_is_json(tmp_path, capsys):
    assert start(tmp_path, "--json") == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["experiment"] == "some"
    assert (result["settings"], result["config"]) == ("full", {"rounds": 600, "alphas": [0.5, 0.9], "sizes": {}})
    assert result["optimum"] == 2.5
    assert result["findings"][0] | {"ratio": 0.5, "reached": False} == result["findings"][0]
    assert "seen so" in printed.err
    rows = {"alpha": [0.5, 0.9], "rounds": [600, 600]}
    kept = result | {"rows": rows, "curves": {"round": [1, 2], "goodput": [1.0, 0.5]}}
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == kept
    assert (tmp_path / "out" / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_is_drawn_again_from_what_is_stored(tmp_path, capsys, monkeypatch):
    start(tmp_path)
    picture = tmp_path / "out" / "figure.png"
    first = picture.read_bytes()
    picture.unlink()
    monkeypatch.setitem(globals(), "experiment", lambda config: pytest.fail("it was run again"))
    capsys.readouterr()
    assert start(tmp_path, "--redraw") == 0
    assert picture.read_bytes() == first
    assert capsys.readouterr().out == f"{picture}\n"


def test_without_results_nothing_is_drawn(tmp_path):
    with pytest.raises(SystemExit, match="nothing can be drawn from it; run the experiment first"):
        start(tmp_path, "--redraw")


@dataclass(frozen=True)
class Compared(Comparing, Config):
    """Settings of an experiment that compares policies."""

    policies: tuple[str, ...] = ("gradient",)


def compare(config):
    for name in config.policies:
        policies.create(name).allocate([policies.ClientState(0.5, 1.0)], 4)
    return experiment(config)


def own_policy(tmp_path, answer):
    """Writes a policy that always answers so; returns its name."""
    code = f"class Mine:\n    def allocate(self, clients, budget):\n        return {answer}\n"
    (tmp_path / "mine.py").write_text(code)
    return f"{tmp_path}/mine.py:Mine"


def test_a_policy_of_ones_own_is_compared_with_the_others(tmp_path, capsys):
    policy = own_policy(tmp_path, "[budget]")
    start(tmp_path, "--json", f"--policy={policy}", config=Compared, does=compare)
    assert json.loads(capsys.readouterr().out)["config"]["policies"] == ["gradient", policy]


def test_a_policy_that_is_wrong_ends_the_run_by_name(tmp_path):
    policy = own_policy(tmp_path, "[-1]")
    with pytest.raises(SystemExit, match=r"some: the policy .*mine\.py:Mine returned the length -1 for client 0"):
        start(tmp_path, f"--policy={policy}", config=Compared, does=compare)
    with pytest.raises(SystemExit, match="no policy is named 'greedy'"):
        start(tmp_path, "--policy=greedy", config=Compared, does=compare)


def read(out):
    found = json.loads(out)
    return [(finding["wanted"], finding["reached"]) for finding in found["findings"]]


def test_goals_are_judged_for_the_shipped_settings_only(tmp_path, capsys, monkeypatch):
    titles = []
    monkeypatch.setattr(Figure, "suptitle", lambda self, title, **_: titles.append(title))
    start(tmp_path, "--json", config=Compared, does=compare)
    assert read(capsys.readouterr().out) == [("at least 3", False), ("", None)]
    start(tmp_path, "--json", "--policy=fixed", config=Compared, does=compare)
    told = capsys.readouterr()
    assert read(told.out) == [("", None)] * 2
    assert "nothing is judged" in told.err
    (tmp_path / "some.toml").write_text(SETTINGS.replace("rounds = 600", "rounds = 601"))
    start(tmp_path, "--json")
    told = capsys.readouterr()
    assert read(told.out) == [("", None)] * 2
    assert "MISSED" not in told.err
    assert titles == ["some, with other settings than the shipped ones"] * 2


WRONG = {
    "no section": ("[quick]\nrounds = 1\nalphas = []\n", "KeyError: 'full'"),
    "another type": ("[full]\nrounds = 'many'\nalphas = []\n", "rounds"),
    "not TOML": ("rounds : 3", "TOMLDecodeError"),
    "a value short": ("[full]\nrounds = 1\n", "alphas"),
    "a setting above the sections": (f"seed = 1\n{SETTINGS}", "no such setting: seed$"),
    "a misspelt setting": (SETTINGS.replace("[quick]", "round = 6\n[quick]"), "no such setting: round$"),
    "a misspelt member": (f"{SETTINGS}\n[full.sizes.a]\nusers = 1\nuser = 2\n", r"no such setting: sizes\.a\.user$"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_settings_that_are_wrong_are_named(tmp_path, text, said):
    (tmp_path / "some.toml").write_text(text)
    with pytest.raises(SystemExit, match=rf"some\.toml, section full: .*{said}"):
        start(tmp_path)


def test_every_experiment_has_settings_and_every_settings_file_an_experiment():
    for name in experiments():
        script = (HERE / f"{name}.py").read_text()
        assert re.search(rf'run\(\s*"{name}"', script)
    scripts = {path.stem for path in HERE.glob("*.py") if re.search(r"sys\.exit\((harness\.)?run\(", path.read_text())}
    assert scripts == set(experiments())


SCRIPTS = {
    "good": "import sys\nprint('{\"arguments\": %d}' % len(sys.argv))\n",
    "bad": "raise SystemExit(3)\n",
    "mute": "print('no object')\n",
    "slow": "import time\nprint('begun', flush=True)\ntime.sleep(600)\n",
}


@pytest.mark.thorough
def test_several_scripts_run_in_turn_and_those_that_fail_are_named(tmp_path, capsys, monkeypatch):
    for name, source in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["some", "--quick", "--json", "--limit-s=8"])
    assert run_all("some", "About.", list(SCRIPTS)) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"good": {"arguments": 3}, "failed": ["bad", "mute", "slow"]}
    assert printed.err.splitlines()[-3:] == [
        "failed: bad: its exit status is 3",
        "failed: mute: its last line under --json is not a JSON object",
        "failed: slow: it took longer than 8 s",
    ]
    assert "== 1 of 4: good" in printed.err
    assert "begun" in printed.err  # what a script prints is passed on
