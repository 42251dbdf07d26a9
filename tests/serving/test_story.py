"""A session's story, and the tables of transitions that errors and the document are made from."""

from pathlib import Path
from typing import Any

import pytest

from draft_node.core import session as draft_session
from goodspeed.serving.measuring.story import NODE, NUM_EVENTS, NUM_SESSIONS, Story, WrongTransition, follow
from tests.fakes import Desk, session_id
from verify_node.session import phase

TABLES: dict[str, tuple[Any, Any]] = {
    "verify": (phase.Phase, phase.TRANSITIONS),
    "draft": (draft_session.State, draft_session.TRANSITIONS),
}
DOCUMENT = (Path(__file__).parents[2] / "docs/PROTOCOL.md").read_text("utf-8")


def test_the_newest_events_of_the_newest_sessions_are_kept() -> None:
    story = Story()
    story.note(b"b", "commit", 1, phase.Phase.RUNNING, 1.0)
    for number in range(NUM_EVENTS + 2):
        story.note(b"a", "commit", number, phase.Phase.RUNNING, 2.0 if number == 0 else None)
    assert story.of(b"a")[0] == "2.000 s: commit 2 -> running"
    assert story.all() == {"62": ["1.000 s: commit 1 -> running"], "61": story.of(b"a")}, "b's are not those that go"
    story.note(b"b", "commit", 2, phase.Phase.RUNNING)
    for number in range(NUM_SESSIONS - 1):
        story.note(number.to_bytes(2, "big"), "open", 1, phase.Phase.OPENED)
    assert (len(story.of(b"a")), len(story.of(b"b")), len(story.all())) == (0, 2, NUM_SESSIONS)


def test_a_wrong_event_tells_the_story() -> None:
    story = Story()
    story.note(b"a", "commit", 2, phase.Phase.FINISHED, 1.5)
    message = "session 61 is finished: begin is not possible; its story: 1.500 s: commit 2 -> finished"
    with pytest.raises(WrongTransition, match=message):
        follow(phase.TRANSITIONS, phase.Phase.FINISHED, "begin", b"a", story)
    with pytest.raises(WrongTransition, match="its story: none"):
        follow(phase.TRANSITIONS, phase.Phase.COMPILING, "commit", b"b", story)


def test_a_verify_core_tells_what_happened_and_nothing_of_a_text() -> None:
    desk = Desk()
    desk.hello()
    desk.open(max_tokens=2)
    while not desk.session().finished:
        desk.round()
    num_tokens = len(desk.session().tokens)
    desk.core.sessions.drop(desk.session())
    story = desk.core.sessions.story
    events = [line.partition(": ")[2] for line in story.of(session_id(1))]
    begun = ["open 1 -> opened", "commit 1 -> running", "commit 1 -> finished"]
    assert events == [*begun, f"drop {num_tokens} -> finished"]
    assert [line.split(": ")[1] for line in story.of(NODE)][:2] == ["begin a round of sessions 1", "finish round 1"]


@pytest.mark.parametrize("node", TABLES)
def test_the_document_has_the_whole_table(node: str) -> None:
    told: dict[str, dict[str, str]] = {}
    for row in DOCUMENT.splitlines():
        if row.startswith(f"| {node} | "):
            state, events = (cell.strip() for cell in row.split("|")[2:4])
            told[state] = dict(event.split(": ") for event in events.split("; ") if event)
    states, table = TABLES[node]
    assert told == {state.value: {event: after.value for event, after in table[state].items()} for state in states}
