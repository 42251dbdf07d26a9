"""A `VerifyCore` is built from its settings, for the daemon, the simulation and the tests alike."""

from dataclasses import fields
from typing import Any

import pytest

from experiments.simulation.settings import Settings
from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.paged.pages import PagePool
from goodspeed.errors import ConfigError
from goodspeed.slo.objectives import Objectives
from tests.constraint.babbler import VOCABULARY
from verify_node.config import VerifyConfig
from verify_node.core.core import VerifyCore
from verify_node.core.settings import DEFAULTS, CoreSettings


def build(settings: CoreSettings, constraints=None):
    welcome = settings.welcome(
        boot_id=b"12345678", tokenizer="t", vocab_size=10, context_len=100, max_message_bytes=1 << 20
    )
    return VerifyCore(settings, welcome, PagePool(8, 4), constraints=constraints)


def test_every_setting_of_the_core_is_one_of_the_daemon_with_the_same_default():
    assert VerifyConfig(model="m").core == DEFAULTS
    same: dict[str, Any] = {"budget": 7, "max_round_tokens": 99, "max_sessions": 3200, "heartbeat_s": 0.5}
    same |= {"admission": "none", "order": "laps"}
    renamed: dict[str, Any] = {"slo_tier": ("chat:tpot=50ms",), "bind": "tcp://192.0.2.1:5555", "device": "cuda"}
    own = VerifyConfig(model="m", preset="paper", policy="random", **renamed, **same).core
    tiers = (Objectives(tpot_s=0.05, tier="chat"),)
    paper: dict[str, Any] = {"rounds": "barrier", "weigh_evidence": False, "beta": 0.5}
    derived: dict[str, Any] = {"max_client_sessions": 200, "is_shared": False, "drafts_first": True, "lease_s": 1.5}
    assert own == CoreSettings(policy="random", tiers=tiers, **derived, **paper, **same)
    # nothing is promised here, and what is left is for simulations and tests
    others = {"self_draft", "eta", "has_draft_model"}
    names = {one.name for one in fields(DEFAULTS)} - others
    assert all(getattr(own, name) != getattr(DEFAULTS, name) for name in names)
    assert VerifyConfig(model="m", max_sessions=11).core.max_client_sessions == 64
    assert VerifyConfig(model="m", draft_model="d").core.has_draft_model  # not with a preset


def test_there_are_promises_where_there_are_tiers_and_rounds_wait_for_nobody():
    assert VerifyConfig(model="m", slo_tier=("chat:tpot=50ms",)).core.admits == "dp"
    assert VerifyConfig(model="m").core.admits == "none"
    with pytest.raises(ConfigError, match="--admission dp needs rounds that wait for no draft"):
        VerifyConfig(model="m", admission="dp", preset="paper", budget="auto")
    assert VerifyConfig(model="m", preset="paper", slo_tier=("chat:tpot=50ms",)).core.admits == "none"


def test_the_simulation_says_otherwise_only_where_its_worlds_are_smaller():
    small = {"max_sessions", "max_client_sessions", "is_shared"}
    simulated = Settings().core
    other = {name for name in CoreSettings.__dataclass_fields__ if getattr(simulated, name) != getattr(DEFAULTS, name)}
    assert other == small


def test_what_is_announced_is_what_is_on():
    tiers = (Objectives(tpot_s=0.05, tier="chat"),)
    off, promising = build(DEFAULTS).welcome, build(CoreSettings(tiers=tiers)).welcome
    assert (off.promises, off.constraints, promising.promises) == (False, False, True)
    assert not build(CoreSettings(admission="none", tiers=tiers)).welcome.promises
    assert build(DEFAULTS, constraints=Constraints(VOCABULARY)).welcome.constraints
