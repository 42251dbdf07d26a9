"""A verify node finds its model of a round's time, and the budget that follows from it."""

import re

import pytest

from goodspeed.serving.events import EventLog, Reporter
from tests.micro import make_checkpoint, make_engine
from verify_node.config import VerifyConfig
from verify_node.process import costs
from verify_node.process.assembly import assemble
from verify_node.process.costs import measure, with_budget
from verify_node.process.preflight import check

ENGINE = make_engine(make_checkpoint(1))


@pytest.fixture
def quick(monkeypatch):
    """A profile of a moment; no figure of it is looked at."""
    monkeypatch.setattr(costs, "QUICK_S", 0.05)


def config(**options):
    return VerifyConfig(model="micro", **options)


def test_nothing_is_measured_where_rounds_are_the_papers_and_what_still_is_to_be_is_no_number(capsys):
    assert measure(config(preset="paper"), ENGINE) is None
    assert capsys.readouterr().err == ""
    assert with_budget(config(preset="paper", budget=7), None).budget == 7
    with pytest.raises(RuntimeError, match="still to be measured"):
        _ = config(budget="auto").num_drafted


@pytest.mark.parametrize("options", [{}, {"policy": "fixed"}, {"preset": "paper", "budget": "auto"}])
def test_how_long_rounds_take_is_measured_where_drafts_or_the_budget_depend_on_it(quick, options):
    assert measure(config(**options), ENGINE) is not None


def test_an_automatic_budget_is_measured_and_said(quick, capsys):
    profile = measure(config(budget="auto"), ENGINE, Reporter("x"))
    chosen = with_budget(config(budget="auto"), profile, Reporter("x"))
    said = capsys.readouterr().err
    assert re.match(r"x: profiling \w+ for about [\d.]+ s \.\.\.\nx: profiled micro on ", said)
    assert re.search(r"R2 of the roofline is -?[\d.]+", said)
    assert "\nx: --budget auto: " in said
    assert f"{chosen.budget} drafted tokens a round" in said
    assert 1 <= chosen.num_drafted < chosen.core.max_round_tokens


def test_a_node_with_an_automatic_budget(quick, capsys):
    wanted = VerifyConfig(model="tiny-draft-s", bind="tcp://127.0.0.1:0", budget="auto")
    daemon = assemble(wanted, EventLog(enabled=False), check(wanted), Reporter("x"))
    daemon.channel.close()
    core = daemon.core
    assert f"--budget auto: {core.limits.budget} drafted tokens" in capsys.readouterr().err
    assert core.allocator.budget == core.limits.budget < core.limits.max_round_tokens
    assert core.rounds.cost.profiled
    assert core.pool.num_free == core.pool.num_pages


def test_a_gpu_has_a_measured_budget_longer_rounds_and_draft_models_that_begin_at_any_load_unless_told():
    assert [config(device=device).budget for device in ("cpu", "cpu:0", "cuda", "cuda:1")] == [24, 24, "auto", "auto"]
    assert config(device="cuda", preset="paper").budget == 24
    assert config(device="cuda", budget=16).core.max_round_tokens == 2048
    here, everywhere = "tcp://127.0.0.1:5555", "tcp://0.0.0.0:5555"
    places = [("cpu", here), ("cuda", here), ("cpu", everywhere)]
    cores = [config(device=device, budget=16, bind=bind, trusted_network=True).core for device, bind in places]
    assert [(core.is_shared, core.drafts_first) for core in cores] == [(True, False), (True, True), (False, False)]
