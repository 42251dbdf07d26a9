"""`edf`: simulates earliest deadline first, and admits each request that is feasible with those admitted before.

The baseline of `dp`, and its fallback. Ignores values. Its time grows with the number of requests times the number of
earlier promises.
"""

from collections.abc import Sequence

from goodspeed.slo.feasible import Ask, Course


def earliest(ordered: Sequence[Ask], now: Course) -> list[bool]:
    """Decides which requests to admit; promised ones stay. ordered: by deadline; the promised ones must be feasible."""
    later = [ask for ask in ordered if ask.promised]
    course, kept = now, []
    for ask in ordered:
        later = later[1:] if ask.promised else later
        following = course.after(ask)
        is_kept = following is not None and following.after_all(later) is not None
        kept.append(is_kept)
        if following is not None and is_kept:
            course = following
    return kept
