"""How many leaves a step of the draft model drafts behind, by the time that steps take with more rows. No clock."""

MAX_WIDTH = 8
"""Most leaves per session and step; with the embedded models, more find too few that are likely enough."""

MOST_SLOWER = 1.5
"""Longest step with branches, relative to one without: a slower one holds up the likeliest continuation, which is worth
more than they are."""

TRIED_AGAIN = 64
"""One in TRIED_AGAIN steps has no branches, to measure what they cost."""

SMOOTHING = 0.1
"""Weight of the newest step."""


class Widths:
    """Chooses the width of each step."""

    def __init__(self, max_width: int = MAX_WIDTH) -> None:
        self.max_width = max_width
        self._num_steps = 0
        self._seconds: dict[int, float] = {}  # of a step, smoothed, by the power of two that its rows are below

    def choose(self, num_jobs: int) -> int:
        """Returns the most leaves for each of so many proposals: 1 where a row costs a step."""
        self._num_steps += 1
        alone_s = self._seconds.get(num_jobs.bit_length())
        if self.max_width == 1 or alone_s is None or self._num_steps % TRIED_AGAIN == 0:
            return 1
        width = self.max_width
        while width > 1 and self._seconds.get((num_jobs * width).bit_length(), 0.0) > MOST_SLOWER * alone_s:
            width //= 2
        return width

    def observe(self, num_rows: int, seconds: float) -> None:
        """Takes the time of a step that fed no prompts."""
        key = num_rows.bit_length()
        self._seconds[key] = self._seconds.get(key, seconds) * (1 - SMOOTHING) + seconds * SMOOTHING
