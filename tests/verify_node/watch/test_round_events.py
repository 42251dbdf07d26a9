"""The event of a round has its sums, and a row for each session that moved."""

from typing import Any

from tests.fakes import Desk
from verify_node.watch.round_events import round_event


def test_a_round_has_its_sums_and_a_row_of_each_session() -> None:
    desk = Desk(rounds="barrier")
    desk.hello()
    desk.open()
    planned = desk.plan()
    verdicts: Any = desk.finish(planned)
    told: Any = round_event(planned, verdicts, desk.core.sessions)
    assert (told["number"], told["num_drafted"], len(told["sessions"])) == (1, 0, 1)
    key = desk.session().session_id.hex()
    assert told["may_draft"] == {key: desk.session().drafts.may_draft} == {key: desk.core.limits.budget}
    assert told["sessions"][0]["may_draft"] == desk.core.limits.budget
