"""Chooses how many leaves a step of the draft model extends, and how much it prefills beside other proposals.

The leaves are to maximize the expected accepted tokens per second.

A token drafted after a leaf is useful only if the text reaches the leaf, so its value is the leaf's path probability.
More leaves yield more accepted tokens. They take much longer where the time depends on the rows, and no longer where
reading the weights dominates. No clock.
"""

from collections.abc import Sequence

MAX_WIDTH = 8
"""Most leaves per session and step; the embedded models rarely have more leaves that are likely enough."""

TRIED_AGAIN = 64
"""One in TRIED_AGAIN steps has no branches, and one has twice the chosen leaves: this measures what leaves cost."""

SHORTEST_S = 1e-9

RISE, FALL = 0.1, 0.5
"""Weights of the newest time in the average: if it is longer than expected, and if not. Other work on the machine only
adds time, so a longer time says less."""


LONGEST = 2.7
"""Longest step with prefill, in steps without, while other sessions draft; as for the verify node's rounds."""

ALONE, LONGEST_ALONE_S = 64, 1.0
"""Tokens that the first step with nothing but prompts prefills, and about the longest time of such a step, in seconds:
a step that takes several counts as a failure of the model, however slow its machine is."""

UNMEASURED = 16
"""Steps with prefill after which one prefills nothing, so that the time of such a step stays known."""


class PrefillRows:
    """Adapts the tokens that a step prefills, beside other proposals and alone, to the time that such steps take."""

    def __init__(self, largest: int) -> None:
        """largest: beside other proposals."""
        self.most = self._largest = largest
        self.alone = ALONE  # where all proposals lack most of their text
        self._plain_s = 0.0  # of a step that prefills nothing, smoothed
        self._num_unmeasured = 0  # steps with prefill since the latest one without

    def choose(self) -> int:
        """Returns the most tokens that the next step prefills."""
        if self._num_unmeasured >= UNMEASURED:
            self._num_unmeasured = 0  # whatever becomes of this step
            return 0
        return self.most

    def observe(self, num_prefill: int, seconds: float) -> None:
        """Records the time of a step beside which other sessions drafted."""
        self._num_unmeasured = self._num_unmeasured + 1 if num_prefill else 0
        if not num_prefill:
            known = self._plain_s or seconds
            self._plain_s = known + (seconds - known) * (RISE if seconds > known else FALL)
        elif self._plain_s:
            times = min(2.0, max(0.5, LONGEST * self._plain_s / max(seconds, SHORTEST_S)))
            if times < 1.0 or num_prefill >= self.most - 1:  # a short prompt's end shows not how much would fit
                self.most = int(min(self._largest, max(1, round(num_prefill * times))))
        elif seconds > LONGEST_ALONE_S:
            self.most = max(1, num_prefill // 2)

    def observe_alone(self, num_prefill: int, seconds: float) -> None:
        """Records the time of a step beside which no session drafted."""
        times = min(2.0, max(0.5, LONGEST_ALONE_S / max(seconds, SHORTEST_S)))
        if times < 1.0 or num_prefill >= self.alone - 1:  # a short prompt's end shows not how much would fit
            self.alone = max(1, round(self.alone * times))


class Widths:
    """Chooses the width of each step."""

    def __init__(self, max_width: int = MAX_WIDTH, num_parallel: int = 1) -> None:
        """num_parallel: rows of a proposal in a step without branches; more than 1 with mask tokens (PARD)."""
        self.max_width, self.num_parallel = max_width, num_parallel
        self._num_steps = 0
        self._seconds: dict[int, float] = {}  # smoothed, of a step, by the next power of two above its number of rows

    def choose(self, jobs: Sequence[Sequence[float]]) -> int:
        """Returns the most leaves for each proposal; a width without a measured time counts as fast.

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
        """Returns the expected number of accepted tokens of a step. A mask's token counts like its leaf's."""
        return sum(self.num_parallel * likely[0] + sum(likely[1:width]) for likely in jobs if likely)

    def _known(self, jobs: Sequence[Sequence[float]], width: int) -> float:
        """Returns the seconds of a step of this width; 0: it was not measured."""
        num_rows = sum(self.num_parallel - 1 + min(width, max(1, len(likely))) for likely in jobs)
        return self._seconds.get(num_rows.bit_length(), 0.0)

    def observe(self, num_rows: int, seconds: float) -> None:
        """Records the time of a step that prefilled no prompts."""
        key = num_rows.bit_length()
        known = self._seconds.get(key, seconds)
        self._seconds[key] = known + (seconds - known) * (RISE if seconds > known else FALL)
