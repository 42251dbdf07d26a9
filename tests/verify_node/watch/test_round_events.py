"""The event of a round: sums, and the way of drafting under which it was made. What was found of these, at the end."""

import json
from typing import Any

from tests.fakes import Desk
from tests.verify_node.arms.test_switching import observed
from verify_node.arms.comparisons import Arm
from verify_node.watch.round_events import arms_found, round_event

FIGURES = ("arm", "relative_rate", "standard_error", "share")


def event(desk: Desk) -> dict[str, Any]:
    """A round's event, told as the daemon does when it is done."""
    planned = desk.core.plan(desk.now)
    assert planned is not None
    verdicts: Any = desk.finish(planned)
    return round_event(planned, verdicts, desk.core.view.sessions, desk.core.view.newest_arm)


def test_a_round_has_the_arm_that_it_was_made_under() -> None:
    desk = Desk()
    observed(desk)
    desk.hello()
    desk.open()
    assert event(desk)["arm"] == "model"
    desk.draft()
    planned = desk.core.plan(desk.now)
    assert planned is not None
    desk.core.switching._arms.said = Arm.NONE
    desk.finish(planned)
    assert desk.core.view.newest_arm is Arm.MODEL
    assert event(desk)["arm"] == "none"


def test_where_nothing_is_tried_there_is_no_arm() -> None:
    desk = Desk(rounds="barrier")
    desk.hello()
    desk.open()
    told = event(desk)
    assert told["arm"] is None
    assert (told["number"], told["num_drafted"], len(told["sessions"])) == (1, 0, 1)
    key = desk.session().session_id.hex()
    assert told["may_draft"] == {key: desk.session().may_draft} == {key: desk.core.limits.budget}
    assert told["sessions"][0]["may_draft"] == desk.core.limits.budget
    assert arms_found(desk.core.view) == []


def test_what_was_found_is_told_by_load_and_arm() -> None:
    desk = Desk()
    desk.hello()
    for number in range(8):
        desk.open(number=number)
    desk.round()
    one, eight = json.loads(json.dumps(arms_found(desk.core.view)))  # the first round found one, and left eight
    assert (one["load"], one["best"], eight["load"], eight["best"]) == (1, "model", 8, "model")
    assert [tuple(row[name] for name in FIGURES) for row in one["arms"]] == [
        ("none", None, None, 0.0),
        ("ngram", None, None, 0.0),
        ("model", 1.0, 0.0, 1.0),
    ]
    assert [row["share"] for row in eight["arms"]] == [0.0, 0.0, 0.0]
