"""Emulated hardware: how long its passes take and which are late, and speeds that live and simulated are the same."""

import io
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from draft_node.config import DraftConfig
from experiments.benchmarks import emulated
from experiments.benchmarks.load import as_simulated
from experiments.benchmarks.load.as_simulated import WAYS, Found, Turns, simulate, wanted
from experiments.benchmarks.nodes import emulating, workers
from experiments.benchmarks.nodes.emulating import slowed
from experiments.benchmarks.nodes.hardware import Hardware, emulation
from experiments.benchmarks.nodes.workers import Served, Wanted
from goodspeed.engine.runner import Runner
from goodspeed.fair.round_time import Linear, Roofline
from goodspeed.wire.endpoints import is_loopback
from verify_node.config import VerifyConfig

COST = Roofline((Linear(fixed_s=1.0, token_s=0.5, session_s=0.25, context_s=0.125), Linear(fixed_s=2.0)))
OTHER = Roofline((Linear(fixed_s=7.0),))


@pytest.fixture(scope="module")
def recordings():
    with emulated.recorded(Namespace(quick=True, tokens=8)) as path:
        yield path


@pytest.fixture
def hardware():
    with emulation(COST, [OTHER, COST], 10.0) as made:
        yield made


def told(words: list[str]) -> Hardware:
    return msgspec.json.decode(words[1], type=Hardware)


def test_every_node_is_told_its_own_hardware(hardware):
    verify, *drafts = map(told, (hardware.words(None), hardware.words(0), hardware.words(1)))
    assert verify.pass_s(4, 2, 8) == drafts[1].pass_s(4, 2, 8) == 10.0 * (1.0 + 2.0 + 0.5 + 1.0)
    assert verify.pass_s(0, 0, 0) == 20.0  # the other term of the roofline
    assert drafts[0].pass_s(4, 2, 8) == 70.0
    assert len({verify.log, drafts[0].log, drafts[1].log}) == 3


@pytest.mark.parametrize(("real_s", "slept_s"), [(5.0, 40.0), (45.0, 0.0), (50.0, 0.0)])
def test_a_pass_sleeps_until_its_time_is_over(hardware, real_s, slept_s):
    now, log = [100.0], io.StringIO()
    slept: list[float] = []
    lengths = {"a": 8, "b": 0}  # what is in memory before the pass

    def forward(runner, chunks):
        now[0] += real_s
        lengths.update(a=11, b=1)
        return "logits"

    pass_: Any = slowed(forward, told(hardware.words(None)), log, lambda: now[0], slept.append)
    chunks = [SimpleNamespace(key="a", tokens=(1, 2, 3)), SimpleNamespace(key="b", tokens=(4,))]
    assert pass_(SimpleNamespace(pool=SimpleNamespace(length=lengths.get)), chunks) == "logits"
    assert slept == [slept_s]
    assert log.getvalue() == f"100.0 {real_s} 45.0\n"


def test_passes_that_took_longer_than_emulated_are_counted(hardware):
    (hardware.folder / "verify").write_text("1.0 9.0 2.0\n5.0 1.0 2.0\n6.0 2.5 2.0\n7.0 9")  # the last is being written
    (hardware.folder / "draft-0").write_text("5.5 2.0 2.0\n")
    assert hardware.late(0.0) == {"verify": (2, 3), "draft": (0, 1)}
    assert hardware.late(5.0) == {"verify": (1, 2), "draft": (0, 1)}


def test_emulated_draft_nodes_are_elsewhere_for_the_verify_node(hardware, monkeypatch):
    is_shared = []
    monkeypatch.setattr("verify_node.cli.main", lambda: is_shared.append(VerifyConfig(model="m").core.is_shared))
    monkeypatch.setattr(Runner, "forward", Runner.forward)
    monkeypatch.setattr("verify_node.config.is_loopback", is_loopback)
    monkeypatch.setattr("verify_node.process.costs.QUICK_S", 1.0)
    monkeypatch.setattr("sys.argv", ["emulating", *hardware.words(None)[1:], "verify_node"])
    emulating.main()
    assert is_shared == [False]


def test_emulated_nodes_are_started_in_its_process(hardware, monkeypatch):
    started = []
    monkeypatch.setattr(workers, "start", lambda words, core: started.append(words))
    monkeypatch.setattr(workers, "end", lambda process: None)
    monkeypatch.setattr(workers.DraftWorker, "wait_until_connected", lambda worker, verify: None)
    for emulates in (hardware, None):
        with workers.cluster(["m", "n"], ["--policy=fixed"], emulation=emulates):
            pass
    assert [words[:2] for words in started[:3]] == [hardware.words(number) for number in (None, 0, 1)]
    assert [words[0] for words in started[3:]] == ["verify_node", *["experiments.benchmarks.nodes.workers"] * 2]


def test_texts_are_asked_for_by_the_options_of_the_draft_node():
    def asked(max_draft: int, **options: Any):
        request = workers._request(Wanted([7], 2, 1.0, 1, max_draft), 0.0, DraftConfig(model="m", **options))
        return request.verification, request.drafter

    assert asked(8) == ("match", "auto")
    assert asked(8, preset="paper") == ("ratio", "model")
    assert asked(0) == ("match", "none")


def test_speeds_by_hand():
    """Two clients of 4 tokens: one is done after 2 s, the other after 4 s, and had 1 token when the first was."""
    found = Found([[(1.0, 1), (2.0, 3)], [(2.0, 1), (4.0, 3)]], num_accepted=2)
    assert found.measures() == {"own": 4 / 2 + 4 / 4, "until_last": 8 / 4, "all_active": 5 / 2, "drafted": 2 / 8}


def test_the_nodes_are_asked_for_the_texts_that_are_simulated(recordings):
    texts, recorded = wanted(8, 2, 3, recordings), Turns(3, recordings)
    for client, own in enumerate(texts):
        for number, text in enumerate(own):
            assert (len(text.ids), text.seed) == (
                recorded.text(client, number).prompt_len,
                recorded.text(client, number).seed,
            )
    for number in range(2):
        assert len({recorded.text(client, number).domain for client in range(8)}) == 8
    assert len({recorded.text(0, number).domain for number in range(8)}) == 8
    assert texts != wanted(8, 2, 4, recordings)


@pytest.mark.parametrize("name", WAYS)
def test_every_way_is_simulated_with_the_tokens_that_are_asked_for(name, recordings):
    found = simulate(WAYS[name], 2, 2, 6, 0, recordings)
    assert [sum(num for _, num in own) for own in found.clients] == [12, 12]
    assert (found.num_accepted > 0) == WAYS[name].drafts
    times = [at for own in found.clients for at, _ in own]
    assert min(times) >= as_simulated.FAMILY.round_cost.round_s(1, 1, 0)


def test_texts_follow_one_another_and_those_that_differ_are_counted():
    def served(seconds, *delivered, tokens=(1, 2)):
        return Served(list(tokens), 0, 0, seconds, delivered=list(delivered))

    own = [served(3.0, (1.0, 1), (2.5, 1)), served(2.0, (0.5, 2))]
    assert emulated.one_after_another(own) == [(1.0, 1), (2.5, 1), (3.5, 2)]
    live = emulated.Live({}, Namespace(), "")
    asked = [Wanted([7], 2, 1.0, 1), Wanted([8], 2, 1.0, 1)]
    live._compare(asked, own)
    assert live.num_different == 0
    live._compare(asked, [own[0], served(1.0, tokens=(1, 3))])
    assert live.num_different == 1


def test_ratios_are_medians_within_repetitions_and_only_of_what_ran():
    def alike(*values):
        return [dict.fromkeys(emulated.MEASURES, value) for value in values]

    measured = {(1, "default"): alike(2.0, 9.0, 8.0), (1, "none"): alike(1.0, 3.0, 1.0), (8, "default"): alike(4.0)}
    assert emulated.ratios(measured, 8) == {"ratio_1": dict.fromkeys(emulated.MEASURES, 3.0)}
    halved = {key: alike(*(one["own"] / 2 for one in ones)) for key, ones in measured.items()}
    assert emulated.over(halved, measured, factor=2.0)["default_8"] == dict.fromkeys(emulated.MEASURES, 1.0)


@pytest.mark.parametrize(("share", "words", "status"), [(0.02, [], 1), (0.01, [], 0), (0.9, ["--quick"], 0)])
def test_a_run_with_late_passes_fails(share, words, status, monkeypatch, capsys):
    found = {
        "share_late": share,
        "late": {"verify": (1, 9)},
        "num_different": 0,
        "speed_over_simulated": {},
        "drafted": {},
    }
    found["by_measure"] = {"live": {}, "simulated": {}}
    monkeypatch.setattr(emulated, "run", lambda options: found)
    monkeypatch.setattr("sys.argv", ["emulated", *words])
    assert emulated.main() == status
    assert ("2.0% of one kind of node" in capsys.readouterr().err) == bool(status)
