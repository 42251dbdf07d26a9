"""`edf`: admits one request after the other, the earliest deadline first."""

from collections.abc import Sequence

from goodspeed.slo.feasible import Ask, Course
from goodspeed.slo.policies import ADMISSION


@ADMISSION.register("edf")
def earliest(ordered: Sequence[Ask], now: Course) -> list[bool]:
    """Admits, as the baseline and the fallback of `dp`, each request that is feasible with those admitted before it.

    Earliest deadline first; ignores values. ordered: by deadline; the promised ones must be feasible, and stay. The
    time grows with the number of requests times the number of earlier promises.
    """
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
