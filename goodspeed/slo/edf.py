"""`edf`: simulates earliest deadline first, and takes each request that can be kept beside those taken before it.

The rival of `dp`, and its fallback. It does not look at values. Its time grows with the number of requests times those
that were admitted before.
"""

from collections.abc import Sequence

from goodspeed.slo.feasible import Ask, Course


def earliest(ordered: Sequence[Ask], now: Course) -> list[bool]:
    """Says which requests to keep, all promised ones, which can be kept, among them. ordered: by deadline."""
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
