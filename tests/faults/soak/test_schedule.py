"""Schedules of faults: the same from the same seed, and in them what the slopes and the deadlines count on."""

from itertools import pairwise

from tests.faults.soak.schedule import OF_DRAFT_NODES, OF_THE_VERIFY_NODE, REST_S, START_S, VERIFY, Fault, make

STEADY, MORTAL = ("a", "b", "c", "d"), ("e", "f", "g", "h")
HOUR_S = 3600.0


def hour(seed: int) -> list[Fault]:
    return make(seed, HOUR_S, STEADY, MORTAL, gap_s=8.0)


def test_an_hour_has_all_faults_one_at_a_time_and_a_calm_end() -> None:
    faults = hour(3)
    assert faults == hour(3) == sorted(faults, key=lambda fault: fault.at_s)
    assert faults != hour(4)
    assert 250 < len(faults) < 500
    assert {fault.kind for fault in faults} == set(OF_DRAFT_NODES) | set(OF_THE_VERIFY_NODE)
    assert {fault.whom for fault in faults} == {VERIFY, *STEADY, *MORTAL}
    kills = [fault for fault in faults if fault.kind == "kill"]
    assert all(fault.at_s <= HOUR_S / 4 for fault in kills if fault.whom in (VERIFY, *STEADY)), (
        "their growth is watched"
    )
    assert sum(fault.whom == VERIFY for fault in kills) == 2
    for whom in (*STEADY, *MORTAL):
        for fault, following in pairwise(fault for fault in faults if fault.whom == whom):
            pause_s = REST_S + (START_S if fault.kind == "kill" else 0.0)
            assert following.at_s >= fault.at_s + fault.duration_s + pause_s
    for kill in (fault for fault in kills if fault.whom == VERIFY):
        near = [fault for fault in faults if fault.whom == VERIFY and abs(fault.at_s - kill.at_s) < START_S]
        assert near == [kill]
    assert max(fault.at_s + fault.duration_s for fault in faults) <= HOUR_S - 30.0
