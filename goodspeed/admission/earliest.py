"""`edf`: simulates earliest deadline first, and takes each ask that can be kept beside those taken before it.

The rival of `dp`, and its fallback. It does not look at what an ask is worth. Its time grows with the number of asks,
times that of those that were promised before.
"""

from collections.abc import Sequence

from goodspeed.admission.asks import Ask
from goodspeed.admission.course import Course, Situation


def earliest(ordered: Sequence[Ask], now: Situation) -> list[bool]:
    """Which asks to keep, all promised ones among them. These can be kept; all asks are in the order of deadlines."""
    later = [ask for ask in ordered if ask.promised]
    course, kept = Course.begin(now), []
    for ask in ordered:
        later = later[1:] if ask.promised else later
        following = course.after(ask, now.budget)
        if following is None or following.after_all(later, now.budget) is None:
            kept.append(False)
        else:
            kept.append(True)
            course = following
    return kept
