"""Chooses how many leaves a step of the draft model drafts behind: as many as promise most accepted tokens a second.

A token is accepted where the text takes the way to it, so behind a leaf one is worth the leaf's path probability. More
leaves are worth more, and take longer: much longer where a row costs a step, no longer where weights do. No clock.
"""

from collections.abc import Sequence

MAX_WIDTH = 8
"""Most leaves per session and step; with the embedded models, more find too few that are likely enough."""

TRIED_AGAIN = 64
"""One in TRIED_AGAIN steps has no branches, to measure what they cost, and one has twice as many as chosen."""

RISE, FALL = 0.1, 0.5
"""Weights of the newest step if it took longer than expected, and if not: what a machine does beside only adds time."""


class Widths:
    """Chooses the width of each step."""

    def __init__(self, max_width: int = MAX_WIDTH, num_parallel: int = 1) -> None:
        """num_parallel: rows of a proposal in a step without branches, which masks may follow (PARD)."""
        self.max_width, self.num_parallel = max_width, num_parallel
        self._num_steps = 0
        self._seconds: dict[int, float] = {}  # of a step, smoothed, by the power of two that its rows are below

    def choose(self, jobs: Sequence[Sequence[float]]) -> int:
        """Returns the most leaves for each proposal; a width that was not measured counts as quick.

        jobs: the path probabilities of each proposal's leaves, the likeliest first.
        """
        self._num_steps += 1
        turn, alone_s = self._num_steps % TRIED_AGAIN, self._known(jobs, 1)
        if self.max_width == 1 or not alone_s or turn == 0:
            return 1
        most = max(map(len, jobs), default=0)
        widths = [1]
        while widths[-1] < min(most, self.max_width):
            widths.append(min(2 * widths[-1], self.max_width))
        best = max(widths, key=lambda width: self._worth(jobs, width) / (self._known(jobs, width) or alone_s))
        return min(2 * best, self.max_width) if turn == TRIED_AGAIN // 2 else best

    def _worth(self, jobs: Sequence[Sequence[float]], width: int) -> float:
        """Returns about how many tokens of a step are accepted. Those of masks count as their leaf's."""
        return sum(self.num_parallel * likely[0] + sum(likely[1:width]) for likely in jobs if likely)

    def _known(self, jobs: Sequence[Sequence[float]], width: int) -> float:
        """Returns the seconds of a step of this width; 0: it was not measured."""
        num_rows = sum(self.num_parallel - 1 + min(width, max(1, len(likely))) for likely in jobs)
        return self._seconds.get(num_rows.bit_length(), 0.0)

    def observe(self, num_rows: int, seconds: float) -> None:
        """Takes the time of a step that fed no prompts."""
        key = num_rows.bit_length()
        known = self._seconds.get(key, seconds)
        self._seconds[key] = known + (seconds - known) * (RISE if seconds > known else FALL)
