"""Signs of life: which part of how many, in place on a terminal, and seldom elsewhere."""

import io

from experiments.harness.progress import CLEAR, EVERY_S, parts


class Terminal(io.StringIO):
    def isatty(self):
        return True


def walk(stream, seconds, what="settings"):
    """Every part takes as long as `seconds` says."""
    now = [100.0]
    for took in parts(what, seconds, stream=stream, clock=lambda: now[0]):
        now[0] += took
    return stream.getvalue()


def test_on_a_terminal_one_line_stays_in_place_and_goes_away():
    shown = walk(Terminal(), [65.0, 60.0, 1.0])
    assert shown.split(CLEAR) == [
        "",
        "settings: 0 of 3 done, 0:00 so far",
        "settings: 1 of 3 done, 1:05 so far, about 2:10 to go",
        "settings: 2 of 3 done, 2:05 so far, about 1:02 to go",
        "",
    ]
    assert "\n" not in shown


def test_elsewhere_there_is_a_line_now_and_then():
    shown = walk(io.StringIO(), [EVERY_S / 4] * 12).splitlines()
    assert shown == [
        "settings: 4 of 12 done, 0:30 so far, about 1:00 to go",
        "settings: 8 of 12 done, 1:00 so far, about 0:30 to go",
    ]
