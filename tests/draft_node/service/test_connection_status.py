"""The console says when the verify node comes, goes and returns, and less and less often that it is awaited."""

import re
from itertools import pairwise

from draft_node.service.connection import MOST_S, ConnectionStatus
from goodspeed.serving.events import Sentence

ENDPOINT = "tcp://127.0.0.1:5555"


def text(sentences: list[Sentence]) -> list[str]:
    return [sentence.text % sentence.values for sentence in sentences]


def wait(connection: ConnectionStatus, from_s: float, to_s: float, trouble: str | None = None) -> list[str]:
    """Returns what is said in ten looks a second while the verify node has been away for so long."""
    said = []
    for tenth in range(int(from_s * 10), int(to_s * 10) + 1):
        said += text(connection.look(connected=False, away_s=tenth / 10, trouble=trouble))
    return said


def come(connection: ConnectionStatus) -> list[str]:
    return text(connection.look(connected=True, away_s=0.0, trouble=None))


def test_one_that_is_there_is_not_waited_for() -> None:
    connection = ConnectionStatus(ENDPOINT)
    assert wait(connection, 0.0, 1.9) == []
    assert come(connection) == [f"connected to {ENDPOINT}"]
    assert come(connection) == []


def test_waiting_tells_since_when_and_what_to_start_ever_more_rarely() -> None:
    said = wait(ConnectionStatus(ENDPOINT), 0.0, 2000.0)
    assert said[0] == (
        f"waiting for the verify node at {ENDPOINT} (since 2 s); start goodspeed-verify there, or check --verify"
    )
    at = [float(re.search(r"since (\d+) s", line)[1]) for line in said]  # type: ignore[index]
    assert at[:6] == [2, 6, 18, 54, 162, 486]
    assert {late - early for early, late in pairwise(at[5:])} == {MOST_S}


def test_a_late_look_tells_once_that_it_waits() -> None:
    connection = ConnectionStatus(ENDPOINT)
    assert [len(wait(connection, away_s, away_s)) for away_s in (7.0, 7.1, 17.9, 18.0)] == [1, 0, 0, 1]


def test_one_that_was_there_is_away_and_comes_back() -> None:
    connection = ConnectionStatus(ENDPOINT)
    come(connection)
    assert wait(connection, 0.0, 3.2) == [
        f"the verify node at {ENDPOINT} is away; texts wait for it",
        f"waiting for the verify node at {ENDPOINT} (since 2 s); start goodspeed-verify there, or check --verify",
    ]
    assert come(connection) == ["the verify node is back after 3.2 s"]
    assert wait(connection, 0.0, 0.3) == [f"the verify node at {ENDPOINT} is away; texts wait for it"]
    assert come(connection) == ["the verify node is back after 0.3 s"]


def test_of_several_verify_nodes_the_one_in_question_is_named() -> None:
    connection = ConnectionStatus("tcp://a:1, tcp://b:1")
    assert wait(connection, 2.0, 2.0)[0].startswith("waiting for the verify node at tcp://a:1, tcp://b:1 ")

    def look(endpoint: str, away_s: float = 0.0) -> list[str]:
        there = not away_s
        return text(connection.look(connected=there, away_s=away_s, trouble=None, endpoint=endpoint))

    assert look("tcp://b:1") == ["connected to tcp://b:1"]
    assert look("tcp://b:1", 0.7) == ["the verify node at tcp://b:1 is away; texts wait for it"]
    assert look("tcp://a:1") == ["texts go on at another verify node, tcp://a:1, after 0.7 s"]
    assert look("tcp://c:1") == ["new texts go to the verify node at tcp://c:1"]
    assert look("tcp://c:1") == []
    look("tcp://c:1", 0.2)
    assert look("tcp://c:1") == ["the verify node is back after 0.2 s"]


def test_why_it_lets_nobody_in_is_told_once_and_the_advice_is_another() -> None:
    connection = ConnectionStatus(ENDPOINT)
    said = wait(connection, 0.0, 7.0, trouble="this key is not enrolled")
    assert said == [
        f"the verify node at {ENDPOINT} refuses this node: this key is not enrolled",
        f"waiting for the verify node at {ENDPOINT} (since 2 s)",
        f"waiting for the verify node at {ENDPOINT} (since 6 s)",
    ]
    assert wait(connection, 7.1, 7.2, trouble="barred") == [f"the verify node at {ENDPOINT} refuses this node: barred"]


def test_one_that_loads_is_not_to_be_started() -> None:
    connection = ConnectionStatus(ENDPOINT)
    said = []
    for tenth in range(70):
        away_s = tenth / 10
        said += text(connection.look(connected=False, away_s=away_s, trouble=None, is_loading=away_s >= 1.0))
    assert said == [
        f"waiting for the verify node at {ENDPOINT} (since 1 s); it is loading its model",
        f"waiting for the verify node at {ENDPOINT} (since 6 s); it is loading its model",
    ]
    assert come(connection) == [f"connected to {ENDPOINT}"]


def test_the_verify_nodes_own_words_cannot_command_a_terminal() -> None:
    connection = ConnectionStatus("tcp://there:5555")
    said = connection.look(connected=False, away_s=0.1, trouble="no\x1b[2J\nroot: all is well")
    assert any("refuses this node" in sentence.text for sentence in said)
    assert not any(control in str(sentence.values) for sentence in said for control in ("\\x1b", "\\n"))


def test_another_target_is_told_with_both_names() -> None:
    connection = ConnectionStatus(ENDPOINT)
    connection.look(connected=True, away_s=0.0, trouble=None, target=("big", "1"))
    connection.look(connected=False, away_s=3.0, trouble=None, target=("big", "1"))
    back = connection.look(connected=True, away_s=0.0, trouble=None, target=("other", "2"))
    assert text(back) == [
        "the verify node is back after 3.0 s with another target: other (it was big); texts of the old one end"
    ]
    connection.look(connected=False, away_s=1.0, trouble=None, target=("other", "2"))
    again = text(connection.look(connected=True, away_s=0.0, trouble=None, target=("other", "3")))
    assert again == [
        "the verify node is back after 1.0 s with another target: other (it was other, of other weights or precision); "
        "texts of the old one end"
    ]
