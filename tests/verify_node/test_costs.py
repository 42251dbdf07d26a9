"""Where a verify node's model of a round's time comes from, and the budget that it leads to."""

import re

import pytest

from goodspeed.errors import ConfigError
from goodspeed.fair import saved
from goodspeed.serving import profiler
from goodspeed.serving.events import EventLog, Reporter
from tests.micro import make_checkpoint, make_runner
from verify_node import costs
from verify_node.assembly import assemble
from verify_node.config import VerifyConfig
from verify_node.costs import find_profile, make_cost, with_budget
from verify_node.preflight import check

RUNNER = make_runner(make_checkpoint(1))


@pytest.fixture
def quick(monkeypatch):
    """A profile of a moment; no figure of it is looked at."""
    monkeypatch.setattr(costs, "QUICK_S", 0.05)


def config(**options):
    return VerifyConfig(model="micro", **options)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("profile") / "profile.json")
    profile, _ = profiler.profile(RUNNER, profiler.Grid(64, 0, max_sessions=2), 0.05)
    saved.save(profile, path)
    return path


def test_nothing_is_measured_where_rounds_are_the_papers(capsys):
    profile = find_profile(config(preset="paper"), RUNNER)
    assert profile is None
    assert capsys.readouterr().err == ""
    assert not make_cost(profile).profiled
    assert with_budget(config(preset="paper", budget=7), profile).budget == 7


@pytest.mark.parametrize("options", [{}, {"policy": "fixed"}, {"preset": "paper", "budget": "auto"}])
def test_how_long_rounds_take_is_measured_where_drafts_or_the_budget_depend_on_it(quick, options):
    profile = find_profile(config(**options), RUNNER)
    assert profile is not None
    assert make_cost(profile).profiled


def test_an_automatic_budget_is_measured_and_said(quick, capsys):
    profile = find_profile(config(budget="auto"), RUNNER, Reporter("x"))
    chosen = with_budget(config(budget="auto"), profile, Reporter("x"))
    said = capsys.readouterr().err
    assert re.match(r"x: profiling \w+ for about [\d.]+ s \.\.\.\nx: profiled micro on ", said)
    assert re.search(r"R2 is [\d.]+ for the linear model and [\d.]+ for the roofline", said)
    assert "\nx: --budget auto: " in said
    assert f"{chosen.budget} drafted tokens a round" in said
    assert 1 <= chosen.num_drafted < chosen.round_tokens
    assert make_cost(profile).profiled


def test_a_saved_profile_is_not_measured_again(file, monkeypatch, capsys):
    monkeypatch.delattr(profiler, "profile")
    wanted = config(budget="auto", profile=file)
    assert isinstance(with_budget(wanted, find_profile(wanted, RUNNER, Reporter("x"))).budget, int)
    assert capsys.readouterr().err.startswith(f"x: profile {file}, measured ")


def test_an_automatic_budget_leaves_room_in_the_round(file):
    wanted = config(budget="auto", profile=file, max_round_tokens=16)
    chosen = with_budget(wanted, find_profile(wanted, RUNNER))
    assert chosen.num_drafted <= 16 - 1 - 8
    assert chosen.round_tokens == 16


def test_no_pass_is_measured_that_no_round_may_have(quick):
    assert find_profile(config(budget="auto", max_round_tokens=16), RUNNER).max_tokens <= 16


def test_a_profile_of_another_model_is_refused(file):
    other = make_runner(make_checkpoint(1))
    object.__setattr__(other.checkpoint, "name", "other")
    with pytest.raises(ConfigError, match="is of model 'micro' instead of 'other'; measure this one"):
        find_profile(config(profile=file), other)


def test_a_node_with_an_automatic_budget(quick, capsys):
    wanted = VerifyConfig(model="tiny-draft-s", bind="tcp://127.0.0.1:0", budget="auto")
    daemon = assemble(wanted, EventLog(enabled=False), check(wanted), Reporter("x"))
    daemon.channel.close()
    core = daemon.core
    assert f"--budget auto: {core.limits.budget} drafted tokens" in capsys.readouterr().err
    assert core.allocator.budget == core.limits.budget < core.limits.max_round_tokens
    assert core.cost.profiled
    assert core.pool.num_free == core.pool.num_pages


def test_an_automatic_budget_needs_a_profile():
    with pytest.raises(ConfigError, match="--budget auto needs a profile"):
        with_budget(config(budget="auto"), None)


def test_a_budget_that_is_still_to_be_measured_is_no_number():
    with pytest.raises(RuntimeError, match="still to be measured"):
        _ = config(budget="auto").num_drafted
