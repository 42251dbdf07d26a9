"""The benchmark of scaling: its drafts are the target's own words as often as they should be, and its sums add up."""

import pytest

from experiments.benchmarks.nodes.oracle import PAGE_SIZE, Text, page_bytes
from experiments.benchmarks.scaling import Recorded, draw
from goodspeed.engine import checkpoints

TEXT = Text((1, 2, 3), (10, 11, 12, 13))


def test_drafts_are_right_with_the_probability_that_is_asked_for():
    assert TEXT.draft(0, 4, 2, 1.0, 100) == (11, 12)
    assert TEXT.draft(0, 4, 2, 0.0, 100) == (12, 13)
    assert TEXT.draft(0, 6, 9, 1.0, 100) == (13,)  # nothing is known beyond the end
    right = sum(TEXT.draft(number, 3, 4, 0.8, 100)[i] == 10 + i for number in range(500) for i in range(4))
    assert 0.77 < right / 2000 < 0.83


def test_a_draft_does_not_depend_on_its_length():
    for number in range(50):
        longest = TEXT.draft(number, 3, 4, 0.5, 100)
        assert TEXT.draft(number, 4, 2, 0.5, 100) == longest[1:3]


@pytest.fixture(scope="module")
def case():
    checkpoint = checkpoints.load("tiny-target")
    made = Recorded(checkpoint, Text.write(checkpoint, 60, 30), 5)
    made.run(6)
    return made


def test_sessions_are_given_what_the_target_writes_alone(case):
    result = case.result()
    assert result["num_deviating"] == 0
    assert (result["num_sessions"], result["context"]) == (5, 60)
    assert 5 + 5 * 5 < case.num_tokens <= 5 * 30  # more than a token a session and round: drafts are accepted
    assert result["tokens_per_session_and_round"] == case.num_tokens / 6 / 5


def test_memory_is_that_of_the_pages(case):
    pages = page_bytes(case.node.target.runner)
    assert pages == PAGE_SIZE * 8 * 2 * 384 * 4
    assert 2 * pages <= case.result()["kv_bytes_per_session"] <= 4 * pages


def test_a_session_that_was_given_something_else_is_counted(case):
    session = case.clients[0].session
    session.tokens[-1] += 1
    assert case.result()["num_deviating"] == 1
    session.tokens[-1] -= 1


def test_the_figure_is_a_picture(case, tmp_path):
    draw([case.result()], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
