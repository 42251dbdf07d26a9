"""Schedules of faults: the same from the same seed, and in them what the slopes and the deadlines count on."""

from collections import Counter
from itertools import pairwise

import pytest

from tests.faults.soak.schedule import OF_DRAFT_NODES, OF_THE_VERIFY_NODE, REST_S, START_S, VERIFY, Fault, make

STEADY, MORTAL = ("a", "b", "c", "d"), ("e", "f", "g", "h")
HOUR_S = 3600.0


def hour(seed: int) -> list[Fault]:
    return make(seed, HOUR_S, STEADY, MORTAL, gap_s=8.0)


def test_the_seed_says_it_all() -> None:
    assert hour(3) == hour(3)
    assert hour(3) != hour(4)


@pytest.mark.parametrize("seed", range(5))
def test_an_hour_has_faults_of_every_kind_for_everybody(seed: int) -> None:
    faults = hour(seed)
    assert 250 < len(faults) < 500
    kinds = Counter(fault.kind for fault in faults)
    assert set(kinds) == set(OF_DRAFT_NODES) | set(OF_THE_VERIFY_NODE)
    assert {fault.whom for fault in faults} == {VERIFY, *STEADY, *MORTAL}
    assert faults == sorted(faults, key=lambda fault: fault.at_s)


@pytest.mark.parametrize("seed", range(5))
def test_who_is_watched_for_growth_lives_long(seed: int) -> None:
    kills = [fault for fault in hour(seed) if fault.kind == "kill"]
    assert len({fault.whom for fault in kills} & set(MORTAL)) >= 3
    assert all(fault.at_s <= HOUR_S / 4 for fault in kills if fault.whom in (VERIFY, *STEADY))
    assert sum(fault.whom == VERIFY for fault in kills) == 2


@pytest.mark.parametrize("seed", range(5))
def test_one_node_has_one_fault_at_a_time_and_rest_after_it(seed: int) -> None:
    faults = hour(seed)
    for whom in (*STEADY, *MORTAL):
        own = [fault for fault in faults if fault.whom == whom]
        for fault, following in pairwise(own):
            pause_s = REST_S + (START_S if fault.kind == "kill" else 0.0)
            assert following.at_s >= fault.at_s + fault.duration_s + pause_s
    for kill in (fault for fault in faults if fault.whom == VERIFY and fault.kind == "kill"):
        near = [fault for fault in faults if fault.whom == VERIFY and abs(fault.at_s - kill.at_s) < START_S]
        assert near == [kill]


@pytest.mark.parametrize("duration_s", [30.0, 240.0, HOUR_S])
def test_the_end_is_calm(duration_s: float) -> None:
    faults = make(1, duration_s, STEADY, MORTAL, gap_s=2.0)
    assert len(faults) > 3
    assert max(fault.at_s + fault.duration_s for fault in faults) <= duration_s - min(30.0, duration_s / 4)


def test_it_can_be_read() -> None:
    assert str(Fault(12.5, "delay", "edge-1", 7.25, 0.125)) == "   12.5 s  edge-1   delay for 7.2 s, 0.125 s each way"
    assert str(Fault(1.0, "kill", VERIFY, 2.0)) == "    1.0 s  verify   kill for 2.0 s"
