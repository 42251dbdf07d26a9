"""Chooses how many leaves a step of the draft model drafts behind, by the time of steps with more rows. No clock."""

MAX_WIDTH = 8
"""Most leaves per session and step; with the embedded models, more find too few that are likely enough."""

MOST_SLOWER = 1.5
"""Longest step with branches, relative to one without: a slower one holds up the likeliest continuation, which is worth
more than they are."""

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

    def choose(self, num_jobs: int) -> int:
        """Returns the most leaves for each of so many proposals: 1 where a row costs a step."""
        self._num_steps += 1
        alone_s, turn = self._known(num_jobs, 1), self._num_steps % TRIED_AGAIN
        if self.max_width == 1 or not alone_s or turn == 0:
            return 1
        width = self.max_width
        while width > 1 and self._known(num_jobs, width) > MOST_SLOWER * alone_s:
            width //= 2
        return min(2 * width, self.max_width) if turn == TRIED_AGAIN // 2 else width

    def _known(self, num_jobs: int, width: int) -> float:
        """Returns the seconds of a step of this width; 0: it was not measured."""
        return self._seconds.get((num_jobs * (self.num_parallel + width - 1)).bit_length(), 0.0)

    def observe(self, num_rows: int, seconds: float) -> None:
        """Takes the time of a step that fed no prompts."""
        key = num_rows.bit_length()
        known = self._seconds.get(key, seconds)
        self._seconds[key] = known + (seconds - known) * (RISE if seconds > known else FALL)
