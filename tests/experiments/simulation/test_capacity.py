"""Capacity: worlds whose speed is known by hand, and what is read off a curve."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments import capacity
from experiments.harness import experiment as harness
from experiments.simulation import serving
from experiments.simulation.serving import Gpu, Plan
from experiments.simulation.settings import Work
from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import Linear, Roofline

STEADY = Gpu("10 ms a round", Linear(fixed_s=0.01))
SMALL: dict[str, Any] = {
    "context_tokens": 20,
    "warm_tokens": 30,
    "counted_tokens": 60,
    "temperature": 1.0,
    "stand_in": 1,
}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(serving, "FEW", 1)


def plan(tokens_per_s=1000.0, round_trip_s=0.0, gpu=STEADY):
    """tokens_per_s: of a draft node."""
    return Plan(gpu, Linear(fixed_s=1 / tokens_per_s), round_trip_s, **SMALL)


def test_plain_decoding_gives_everybody_a_token_a_round():
    point = serving.serve(plan(100.0, 0.3), 3, plain=True)
    assert point.slowest == pytest.approx(100.0, rel=0.02)
    assert point.tokens_per_s == pytest.approx(300.0, rel=0.02)
    assert point.drafted == 0.0
    assert point.busy == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("draft_s", [0.0, 0.0005])
def test_drafts_cost_the_verify_nodes_own_work_until_they_rest(draft_s):
    """A round takes 10 ms, 1 ms for its sessions, and 10 ms more where all have drafts."""
    wanted = replace(plan(), work=Work(0.00005, draft_s), warm_tokens=60, counted_tokens=120, stand_in=0)
    point = serving.serve(wanted, 20)
    alone = serving.serve(wanted, 20, plain=True)
    assert alone.tokens_per_s == pytest.approx(20 / 0.011, rel=0.02)
    if draft_s:
        assert 0.93 * alone.tokens_per_s < point.tokens_per_s
        assert point.drafted < 0.5
    else:
        assert 1.05 * alone.tokens_per_s < point.tokens_per_s


def test_carried_users_by_hand():
    """A token takes 10 ms with 10 users and 30 ms with 20: 20 ms with 15."""
    speeds = {10: 100.0, 20: 100.0 / 3}
    assert capacity.carried(speeds, 50.0, 20) == (15, "time")
    assert capacity.carried(speeds, 101.0, 20) == (0, "time")
    assert capacity.carried(speeds, 30.0, 20) == (20, "memory")
    assert capacity.carried(speeds, 30.0, 40) == (20, "tried")


def quick():
    return harness.load(harness.HERE / "configs" / "capacity.toml", "quick", capacity.Config)


def test_a_profile(tmp_path):
    path = tmp_path / "profile.json"
    roofline = Roofline((Linear(fixed_s=0.01, token_s=0.001),))
    profile = {"model": "m", "hardware": "some GPU", "engine": "torch", "dtype": "bfloat16", "roofline_r2": 1.0}
    profile["roofline"] = msgspec.to_builtins(roofline)
    path.write_text(json.dumps(profile))
    gpu = serving.profiled(str(path))
    assert gpu.name == "m in bfloat16 by torch on some GPU, profiled"
    assert gpu.round_cost.round_s(10, 1, 10) == pytest.approx(0.02)
    config = replace(quick(), profiles=capacity.Profiles(str(path), str(path)))
    own = capacity.plan("co_located", config)
    assert (own.gpu.name, own.own_draft_cost) == (gpu.name, roofline)
    assert own.work == Work(config.node_s, config.draft_node_s)
    assert capacity.sizes(gpu, config) == [4, 8], "its memory is not known"
    with pytest.raises(
        ConfigError, match="none is no profile of this release; make one with `goodspeed profile --json "
    ):
        serving.profiled(str(tmp_path / "none"))


def test_profiles_that_do_not_belong_together_are_refused(tmp_path):
    roofline = msgspec.to_builtins(Roofline((Linear(fixed_s=0.01),)))
    profile = {"model": "m", "hardware": "a", "engine": "openvino", "dtype": "int8", "roofline": roofline}
    target, elsewhere, older = (str(tmp_path / name) for name in ("target", "elsewhere", "older"))
    older_profile = {key: value for key, value in profile.items() if key != "engine"}  # its dtype may not be what ran
    for path, content in ((target, profile), (elsewhere, profile | {"hardware": "b"}), (older, older_profile)):
        Path(path).write_text(json.dumps(content))
    assert serving.profiled_together(target, target)[0].name == "m in int8 by openvino on a, profiled"
    with pytest.raises(ConfigError, match=r"elsewhere was measured on b, and .*target on a, but one GPU runs both"):
        serving.profiled_together(target, elsewhere)
    with pytest.raises(ConfigError, match="older is no profile of this release"):
        serving.profiled_together(target, older)
