"""Emulated hardware: how long its passes take, and where its draft nodes are."""

import io
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from experiments.benchmarks.nodes import emulating
from experiments.benchmarks.nodes.emulating import Hardware, emulation, slowed
from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.fair.round_time import Linear, Roofline
from goodspeed.wire.endpoints import is_loopback
from verify_node.config import VerifyConfig

COST = Roofline((Linear(fixed_s=1.0, token_s=0.5, session_s=0.25, context_s=0.125), Linear(fixed_s=2.0)))
OTHER = Roofline((Linear(fixed_s=7.0),))


@pytest.fixture
def hardware():
    with emulation(COST, [OTHER, COST], 10.0) as made:
        yield made


def told(words: list[str]) -> Hardware:
    return msgspec.json.decode(words[1], type=Hardware)


@pytest.mark.parametrize(("real_s", "slept_s"), [(5.0, 40.0), (45.0, 0.0), (50.0, 0.0)])
def test_a_pass_sleeps_until_its_time_is_over(hardware, real_s, slept_s):
    now, log = [100.0], io.StringIO()
    slept: list[float] = []
    lengths = {"a": 8, "b": 0}  # what is in memory before the pass

    def forward(engine, chunks):
        now[0] += real_s
        lengths.update(a=11, b=1)
        return "logits"

    pass_: Any = slowed(forward, told(hardware.words(None)), log, lambda: now[0], slept.append)
    chunks = [SimpleNamespace(key="a", tokens=(1, 2, 3)), SimpleNamespace(key="b", tokens=(4,))]
    assert pass_(SimpleNamespace(pool=SimpleNamespace(length=lengths.get)), chunks) == "logits"
    assert slept == [slept_s]
    assert log.getvalue() == f"100.0 {real_s} 45.0\n"


def test_emulated_draft_nodes_are_elsewhere_for_the_verify_node(hardware, monkeypatch):
    is_shared = []
    monkeypatch.setattr("verify_node.cli.main", lambda: is_shared.append(VerifyConfig(model="m").core.is_shared))
    monkeypatch.setattr(TorchEngine, "forward", TorchEngine.forward)
    monkeypatch.setattr("verify_node.config.is_loopback", is_loopback)
    monkeypatch.setattr("verify_node.process.costs.QUICK_S", 1.0)
    monkeypatch.setattr("sys.argv", ["emulating", *hardware.words(None)[1:], "verify_node"])
    emulating.main()
    assert is_shared == [False]
