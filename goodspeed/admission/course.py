"""What has been accepted so far, in the order of deadlines, and whether one more can be kept. Knows no policies."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from goodspeed.admission.asks import Ask
from goodspeed.admission.budget import SLACK, Budget, Decoding


class Situation(NamedTuple):
    """All that a decision is made from, but for the asks."""

    budget: Budget
    decoding: Decoding  # those who decode now
    pages: float = inf  # that are free


class Course(NamedTuple):
    """The state after the last accepted ask, at its deadline."""

    at_s: float
    left: float  # pb, prefill budget that is not used up by then, in tokens
    decoding: Decoding
    pages: float  # still free

    @classmethod
    def begin(cls, now: Situation) -> "Course":
        """Nothing is accepted yet."""
        return cls(0.0, 0.0, now.decoding, now.pages)

    def after(self, ask: Ask, budget: Budget) -> "Course | None":
        """The state after accepting an ask too; None where it cannot be kept.

        Its deadline is no earlier than those accepted before. Its prompt is read by then, out of what the rounds until
        then have to spare, and those who decode from then on can do so for ever.
        """
        if ask.deadline_s < 0.0 or ask.pages > self.pages:
            return None
        left = self.left + budget.tokens(ask.deadline_s - self.at_s, self.decoding) - ask.prompt_tokens
        decoding = self.decoding.with_one(ask.pace)
        if left < -SLACK or not budget.is_sustainable(decoding):
            return None
        return Course(ask.deadline_s, left, decoding, self.pages - ask.pages)

    def after_all(self, asks: Iterable[Ask], budget: Budget) -> "Course | None":
        """The state after accepting all of these, in turn; None where one of them cannot be kept."""
        course: Course | None = self
        for ask in asks:
            if course is None or (course := course.after(ask, budget)) is None:
                return None
        return course


def is_feasible(ordered: Sequence[Ask], now: Situation) -> bool:
    """Whether all of these can be kept, besides those who decode; they are in the order of deadlines."""
    return now.budget.is_sustainable(now.decoding) and Course.begin(now).after_all(ordered, now.budget) is not None
