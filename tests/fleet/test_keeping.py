"""Reports become one table; old ones count for nothing."""

from msgspec.structs import replace

from goodspeed.fleet.keeping import HUNG_S, SILENT_S, Report, Reports
from goodspeed.fleet.replicas import Load, Replica


def report(number: int, num_sessions: int = 0, pid: int = 1) -> Report:
    replica = Replica(f"replica-{number}", f"tcp://h:{number}")
    return Report(replica, "ready", pid).with_load(Load(told_at=1.0, num_sessions=num_sessions, max_sessions=10))


def starting(number: int, pid: int = 1) -> Report:
    return replace(report(number, pid=pid).with_load(None), state="starting")


def heard(*reports: Report, now: float = 0.0) -> Reports:
    found = Reports()
    for one in reports:
        found.hear(one, now, 500.0)
    return found


def test_reports_become_a_table_in_the_order_of_their_numbers() -> None:
    same = replace(report(11), replica=replace(report(11).replica, endpoint="tcp://h:10"))
    found = heard(report(10), same, report(2), starting(3))
    table = found.table(0.0)
    assert [replica.name for replica in table.replicas] == ["replica-2", "replica-3", "replica-11"], "one per endpoint"
    assert [replica.load is None for replica in table.replicas] == [False, True, False]
    assert table.replicas[0].load.told_at == 500.0, "by the clock of whoever keeps the table"
    found.forget_all_but(["replica-2", "replica-4"])
    assert [one["name"] for one in found.told(["replica-2", "replica-4"], 0.0)] == ["replica-2", "replica-4"]
    assert [one.replica.name for one in found.known(0.0)] == ["replica-2"]


def test_what_is_old_has_no_load_and_what_hangs_is_named_once() -> None:
    found = heard(report(1), report(2), starting(3))
    found.hear(report(2), HUNG_S, 505.0)
    assert [one.replica.load is None for one in found.known(SILENT_S)][:2] == [False, False]
    assert [one.replica.load is None for one in found.known(SILENT_S + 0.1)][:2] == [True, False]
    assert found.hung(HUNG_S) == []
    assert found.hung(HUNG_S + 0.1) == ["replica-1"], "what has not served yet may take long to load"
    assert found.hung(HUNG_S + 0.2) == []
    assert found.known(HUNG_S)[0].why == "it reported nothing for 10 s"


def test_a_new_process_counts_as_a_restart_and_one_that_never_served_as_a_failure() -> None:
    found = heard(report(1), starting(1, pid=2))
    assert [(one.state, one.restarts, one.why) for one in found.known(0.0)] == [("starting", 1, "its process ended")]
    found.hear(starting(1, pid=3), 0.0, 500.0)
    assert [(one.state, one.restarts) for one in found.known(0.0)] == [("failing", 2)]
    found.hear(replace(starting(1, pid=3), state="failing", why="no memory"), 0.0, 500.0)
    found.hear(starting(1, pid=4), 0.0, 500.0)
    assert [(one.state, one.why) for one in found.known(0.0)] == [("failing", "no memory")]
    found.hear(report(1, pid=4), 0.0, 500.0)
    assert [(one.state, one.restarts) for one in found.known(0.0)] == [("ready", 3)]


def test_the_least_busy_leaves_first() -> None:
    names = [f"replica-{number}" for number in (1, 2, 3)]
    assert heard(report(1, 5), report(2), report(3)).least_busy(names, 0.0) == ["replica-3", "replica-2", "replica-1"]
    failing = replace(starting(1), state="failing")
    assert heard(failing, report(2), report(3, 1)).least_busy(names, 0.0)[0] == "replica-1", "it serves nobody"
