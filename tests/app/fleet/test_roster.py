"""What keepers report becomes one table; what is old counts for nothing; loads ask for more replicas, or fewer."""

from msgspec.structs import replace

from goodspeed.app.fleet.keeping.keeper import Report
from goodspeed.app.fleet.keeping.plan import Plan
from goodspeed.app.fleet.keeping.roster import FORGET_S, SILENT_S, Roster, new_names
from goodspeed.fleet.replicas import Load
from goodspeed.fleet.scaling import UP_AFTER_S

PLAN = Plan(name="test", model="fake", replicas=1, max_replicas=4)


def report(number: int, num_sessions: int = 0) -> Report:
    load = Load(told_at=1.0, num_sessions=num_sessions, max_sessions=10)
    return Report(f"replica-{number}", f"tcp://h:{number}", "ready", load=load)


def heard(*reports: Report, plan: Plan = PLAN, now: float = 0.0) -> Roster:
    roster = Roster(plan)
    for one in reports:
        roster.hear(one, now, 500.0)
    return roster


def test_reports_become_a_table_in_the_order_of_their_numbers() -> None:
    roster = heard(report(10), report(2), replace(report(3), state="starting", load=None))
    table = roster.table(0.0)
    assert [replica.name for replica in table.replicas] == ["replica-2", "replica-3", "replica-10"]
    assert [replica.load is None for replica in table.replicas] == [False, True, False]
    assert table.replicas[0].load.told_at == 500.0  # by the roster's clock


def test_nobody_yet_is_no_table() -> None:
    assert Roster(PLAN).table(0.0) is None
    assert heard(replace(report(1), state="left")).table(0.0) is None


def test_what_is_old_has_no_load_and_is_forgotten_at_last() -> None:
    roster = heard(report(1), report(2))
    roster.hear(report(2), SILENT_S, 505.0)
    assert [one.load is None for one in roster.table(SILENT_S + 0.1).replicas] == [True, False]
    assert [one.name for one in roster.table(FORGET_S + 0.1).replicas] == ["replica-2"]


def test_two_of_one_endpoint_are_told_as_one() -> None:
    """After a machine was replaced, say, and before the old keeper is forgotten."""
    assert len(heard(report(1), replace(report(2), endpoint="tcp://h:1")).table(0.0).replicas) == 1


def test_who_has_least_to_do_leaves_first() -> None:
    roster = heard(report(1, 5), report(2, 0), report(3, 0), replace(report(4), state="draining"))
    assert roster.least_busy(0.0, 2) == ["replica-3", "replica-2"]
    assert roster.least_busy(0.0, 0) == []


def test_names_are_the_first_that_are_free() -> None:
    assert new_names(["replica-1", "replica-3"], 3) == ["replica-2", "replica-4", "replica-5"]
    assert new_names([], -1) == []


def test_full_replicas_ask_for_more_once_all_are_there() -> None:
    roster = heard(report(1, 10))
    assert roster.wanted(1, 0.0) == 1
    roster.hear(report(1, 10), UP_AFTER_S, 500.0)
    assert roster.wanted(1, UP_AFTER_S) == 2
    roster.hear(replace(report(2), state="starting", load=None), UP_AFTER_S, 500.0)
    assert roster.wanted(2, UP_AFTER_S) is None


def test_a_roster_that_has_just_come_back_changes_nothing_until_all_have_reported() -> None:
    assert heard(report(1), report(2)).wanted(3, 0.0) is None
    assert heard(report(1), report(2), report(3)).wanted(3, 0.0) == 3


def test_a_fixed_number_stays() -> None:
    assert heard(report(1, 10), plan=replace(PLAN, max_replicas=1)).wanted(1, 0.0) is None
