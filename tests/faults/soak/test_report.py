"""The soak's report judges made-up outcomes; each of its promises can break."""

import json

from tests.faults.soak import report
from tests.faults.soak.plan import VERIFY, Plan
from tests.faults.soak.resources import Life
from tests.faults.soak.run import Outcome


def good() -> Outcome:
    """Half an hour in which all went well: memory fills for a minute and then stays."""
    outcome = Outcome(Plan(minutes=30.0, num_nodes=2))
    outcome.tally.verdicts = {"exact": 10, "excused": 1}
    outcome.tokens_by_node.update({"edge-1": 300, "edge-2": 300})
    outcome.statuses = {"edge-1": 0, "edge-2": 0, VERIFY: 0}
    for n in range(360):
        for figure, value in {"rss_mb": 400.0 + min(n, 12) + n % 3, "fds": 18.0 + n % 2, "threads": 7.0}.items():
            outcome.records.of_processes[Life(VERIFY, 1), figure].add(300.0 + 5.0 * n, value)
        outcome.records.of_verify["clients"].add(5.0 * n, 2.0)
    return outcome


def broken(outcome: Outcome) -> list[str]:
    told = report.rows(outcome)
    return [one.what for one in report.promises(outcome, told) if not one.is_kept]


def test_a_good_run_keeps_each_promise_and_each_can_break() -> None:
    def with_(**fields: object) -> Outcome:
        outcome = good()
        for name, value in fields.items():
            setattr(outcome, name, value)
        return outcome

    outcome = good()
    assert broken(outcome) == []
    assert json.loads(json.dumps(report.to_json(outcome)))["kept"]
    wrong = good()
    wrong.tally.verdicts["wrong"] = 1
    assert broken(wrong) == ["every text exact, complete, in time, or excused"]
    assert broken(with_(odd_refusals={"edge-1: 503": 1})) == ["every text is let in where nothing is wrong"]
    assert broken(with_(own_failures=["KeyError('nobody')"])) == ["every fault is done, every text judged"]
    silent = good()
    del silent.tokens_by_node["edge-2"]
    assert broken(silent) == ["every draft node writes texts"]
    assert broken(with_(ended_by_themselves=["edge-1"])) == ["no process ends by itself"]
    assert broken(with_(tracebacks=["edge-1: Traceback"])) == ["no traceback in a log"]
    assert broken(with_(left_over={"verify num_requests_running": 1.0})) == ["sessions and pages are given back"]
    assert broken(with_(statuses={"edge-1": None})) == ["every node ends in good order"]
    assert broken(Outcome(Plan(minutes=1.0))) != [], "a soak in which nothing happened proves nothing"
    for figure, per_hour in {"rss_mb": 20.0, "fds": 6.0, "threads": 4.0}.items():
        grown = good()
        series = grown.records.of_processes[Life(VERIFY, 1), figure]
        pairs = zip(series.times_s, series.values, strict=True)
        series.values = [value + per_hour * time_s / 3600 for time_s, value in pairs]
        assert broken(grown) == ["memory, files, sockets, threads, sessions are flat"]
        [told] = [row for row in report.to_json(grown)["slopes"] if not row["is_flat"]]
        assert (told["whose"], told["figure"]) == ("verify (life 2)", figure)
