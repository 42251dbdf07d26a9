"""What waiting for drafts brings is the difference between rounds with an answer in time and rounds without."""

from verify_node.session.draft_gain import MEMORY, DraftGain


def gain_after(num: int, with_answer: int, without: int) -> float:
    gain = DraftGain()
    for _ in range(num):
        gain.observe(with_answer, in_time=True)
        gain.observe(without, in_time=False)
    return gain.tokens


def test_an_answer_is_hoped_for_at_first() -> None:
    assert gain_after(0, 0, 0) == 1.0


def test_what_goes_on_as_well_without_is_not_waited_for() -> None:
    assert gain_after(100, 2, 2) < 0.05
    assert gain_after(100, 0, 0) < 0.05


def test_it_is_what_an_answer_brings_beyond_that() -> None:
    assert abs(gain_after(400, 3, 1) - 2.0) < 0.05


def test_it_is_never_negative() -> None:
    assert gain_after(100, 0, 3) == 0.0


def test_older_rounds_are_forgotten() -> None:
    gain = DraftGain()
    for _ in range(1000):
        gain.observe(3, in_time=True)
    for _ in range(int(3 * MEMORY)):
        gain.observe(0, in_time=True)
    assert gain.tokens < 0.2
