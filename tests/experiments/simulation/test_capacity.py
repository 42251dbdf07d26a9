"""Capacity: worlds whose speed is known by hand, and what is read off a curve."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from experiments import capacity
from experiments.capacity import WAYS, Config, Gpu, Plan, Profiles, profiled, serve
from experiments.harness.experiment import HERE, load
from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import Linear, Roofline

STEADY = Gpu("10 ms a round", Linear(fixed_s=0.01))
QUICK = load(HERE / "configs" / "capacity.toml", "quick", Config)
SMALL = replace(QUICK, context_tokens=20, warm_tokens=30, counted_tokens=60, stand_in=1, node_s=0.0, draft_node_s=0.0)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(capacity, "FEW", 1)


def plan(tokens_per_s=1000.0, config=SMALL):
    """tokens_per_s: of a draft node."""
    return Plan(config, WAYS["remote"], STEADY, Linear(fixed_s=1 / tokens_per_s))


def test_plain_decoding_gives_everybody_a_token_a_round():
    point = serve(plan(100.0, replace(SMALL, round_trip_s=0.3)), 3, plain=True)
    assert point.slowest == pytest.approx(100.0, rel=0.02)
    assert point.tokens_per_s == pytest.approx(300.0, rel=0.02)
    assert point.drafted == 0.0
    assert point.busy == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("draft_s", [0.0, 0.0005])
def test_drafts_cost_the_verify_nodes_own_work_until_they_rest(draft_s):
    """A round takes 10 ms, 1 ms for its sessions, and 10 ms more where all have drafts."""
    near = replace(SMALL, round_trip_s=0.0, warm_tokens=60, counted_tokens=120, stand_in=0)
    wanted = plan(config=replace(near, node_s=0.00005, draft_node_s=draft_s))
    point, alone = serve(wanted, 20), serve(wanted, 20, plain=True)
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


def test_profiles_of_one_gpu(tmp_path):
    roofline = Roofline((Linear(fixed_s=0.01, token_s=0.001),))
    profile = {"model": "m", "hardware": "a", "engine": "openvino", "dtype": "int8", "roofline_r2": 1.0}
    profile["roofline"] = msgspec.to_builtins(roofline)
    target, elsewhere, older = (str(tmp_path / name) for name in ("target", "elsewhere", "older"))
    older_profile = {key: value for key, value in profile.items() if key != "engine"}  # its dtype may not be what ran
    for path, content in ((target, profile), (elsewhere, profile | {"hardware": "b"}), (older, older_profile)):
        Path(path).write_text(json.dumps(content))
    own = capacity.plan("co_located", replace(QUICK, profiles=Profiles(target, target)))
    assert (own.gpu, own.own_draft_cost) == (Gpu("m in int8 by openvino on a, profiled", roofline), roofline)
    assert own.gpu.round_cost.round_s(10, 1, 10) == pytest.approx(0.02)
    assert capacity.sizes(own.gpu, QUICK) == [4, 8], "its memory is not known"
    with pytest.raises(ConfigError, match=r"elsewhere was measured on b, and .*target on a, but one GPU runs both"):
        profiled(Profiles(target, elsewhere))
    for wrong in ("older", "none"):
        told = f"{wrong} is no profile of this release; make one with `goodspeed profile --json "
        with pytest.raises(ConfigError, match=told):
            profiled(Profiles(target, str(tmp_path / wrong)))
