"""Waiting for drafts brings what rounds with an answer in time have beyond rounds without."""

import pytest

from verify_node.session.client import MEMORY, DraftGain


def gain_after(num: int, with_answer: int, without: int) -> float:
    gain = DraftGain()
    for _ in range(num):
        gain.observe(with_answer, in_time=True)
        gain.observe(without, in_time=False)
    return gain.tokens


@pytest.mark.parametrize(
    ("num", "with_answer", "without", "brings"), [(0, 0, 0, 1.0), (100, 2, 2, 0.0), (400, 3, 1, 2.0), (100, 0, 3, 0.0)]
)
def test_a_draft_brings_what_is_accepted_beyond_what_goes_on_without(
    num: int, with_answer: int, without: int, brings: float
) -> None:
    assert gain_after(num, with_answer, without) == pytest.approx(brings, abs=0.05)


def test_older_rounds_are_forgotten() -> None:
    gain = DraftGain()
    for _ in range(1000):
        gain.observe(3, in_time=True)
    for _ in range(int(3 * MEMORY)):
        gain.observe(0, in_time=True)
    assert gain.tokens < 0.2


def test_what_few_rounds_had_without_a_draft_ends_no_hope() -> None:
    """Rounds then waited for no draft, so none was in time, and none could show that waiting pays."""
    gain = DraftGain()
    for _ in range(5):
        gain.observe(5, in_time=False)
    assert gain.tokens == 1.0
    for _ in range(8):
        gain.observe(2, in_time=True)
    assert gain.tokens == 0.0
