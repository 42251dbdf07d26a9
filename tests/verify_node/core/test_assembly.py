"""How a `VerifyCore` is built from its settings, for the daemon, the simulation and the tests alike."""

from dataclasses import fields, replace
from typing import Any

import pytest

from experiments.simulation.settings import Settings
from goodspeed.engine.paged.pages import PagePool
from goodspeed.errors import ConfigError, UnknownPolicyError
from goodspeed.fair.latency import Refined
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import MAX_DRAFT
from verify_node.config import VerifyConfig
from verify_node.core.settings import DEFAULTS, CoreSettings, PolicySettings, make_core, make_welcome


def build(settings: CoreSettings, *, context_len=100, num_pages=8):
    welcome = make_welcome(
        settings, boot_id=b"12345678", tokenizer="t", vocab_size=10, context_len=context_len, max_message_bytes=1 << 20
    )
    return make_core(settings, welcome, PagePool(num_pages, 4))


def test_the_daemon_has_the_defaults_of_the_core():
    assert VerifyConfig(model="m").core == DEFAULTS


def test_every_setting_of_the_core_can_be_given_on_the_command_line():
    same: dict[str, Any] = {
        "rounds": "barrier",
        "budget": 7,
        "max_round_tokens": 99,
        "eta": 0.2,
        "weigh_evidence": False,
        "beta": 0.3,
        "max_sessions": 11,
        "max_client_sessions": 12,
        "heartbeat_s": 0.5,
        "lease_s": 4.0,
        "selection": "odds",
        "self_draft": False,
        "explore": 0.1,
        "admission": "none",
        "order": "laps",
    }
    renamed: dict[str, Any] = {"linger_ms": 5.0, "slo_tier": ("chat:tpot=50ms",), "bind": "tcp://192.0.2.1:5555"}
    renamed["prefix_cache"] = "off"
    own = VerifyConfig(model="m", policy="random", cost="none", fairness=2.0, seed=3, **renamed, **same).core
    policy = PolicySettings(name="random", weigh_time=False, fairness=2.0, seed=3)
    tiers = (Objectives(tpot_s=0.05, tier="chat"),)
    assert own == CoreSettings(policy=policy, linger_s=0.005, tiers=tiers, is_shared=False, prefix_cache=False, **same)
    for ours, default in ((own, DEFAULTS), (policy, DEFAULTS.policy)):
        names = {one.name for one in fields(default)} - {"guarantee"}  # nothing is promised here
        assert all(getattr(ours, name) != getattr(default, name) for name in names)


def test_whether_promises_count_on_drafts_can_be_given_where_there_are_promises():
    own = VerifyConfig(model="m", slo_tier=("chat:tpot=50ms",), guarantee="speculative").core
    assert (own.admits, own.guarantee) == ("dp", "speculative")
    with pytest.raises(ConfigError, match="--guarantee speculative is about promises, and nothing is promised here"):
        VerifyConfig(model="m", guarantee="speculative")
    with pytest.raises(ConfigError, match="--admission dp needs --policy slo"):
        VerifyConfig(model="m", admission="dp", policy="gradient", budget="auto")


def test_the_simulation_says_otherwise_only_where_its_worlds_are_smaller():
    small = {"policy", "budget", "max_round_tokens", "max_sessions", "max_client_sessions", "is_shared"}
    simulated = Settings().core
    other = {name for name in CoreSettings.__dataclass_fields__ if getattr(simulated, name) != getattr(DEFAULTS, name)}
    assert other == small
    assert simulated.policy == replace(DEFAULTS.policy, name="gradient", weigh_time=False), "nobody asks for anything"


def test_draft_nodes_are_told_of_no_more_context_than_the_memory_holds():
    assert build(DEFAULTS).welcome.context_len == 32
    assert build(DEFAULTS, num_pages=64).welcome.context_len == 100


def test_no_draft_is_longer_than_the_budget_or_a_message_allows():
    assert build(CoreSettings(budget=5)).welcome.max_length == 5
    large = CoreSettings(budget=2 * MAX_DRAFT, max_round_tokens=4 * MAX_DRAFT)
    assert build(large).welcome.max_length == MAX_DRAFT


def test_a_round_that_the_budget_fills_is_refused():
    with pytest.raises(ConfigError, match="--max-round-tokens 24 leaves no room beside --budget 24"):
        CoreSettings(max_round_tokens=24)


@pytest.mark.parametrize("name", ["fixed", "random", "throughput"])
def test_only_gradient_weighs_time(name):
    assert PolicySettings().weighs_time
    assert not PolicySettings(weigh_time=False).weighs_time
    assert not PolicySettings(name=name).weighs_time
    PolicySettings(name=name).create(Refined())


def test_an_unknown_policy_is_refused():
    with pytest.raises(UnknownPolicyError, match="choose one of: fixed, gradient"):
        PolicySettings(name="best").create()
