"""Expected remaining tokens of a text, from the lengths of its client's finished texts."""

import math
from bisect import bisect_right, insort
from collections import deque
from itertools import accumulate

from goodspeed.errors import ConfigError

PRIOR_TOKENS = 128.0
"""Expected length of a text without any evidence; chats have about 200 tokens, completions of code 30."""

PRIOR_TEXTS = 2.0
"""Weight of the prior, in finished texts."""

MAX_TEXTS = 256
"""Most texts that are remembered; the oldest are dropped."""


class OutputLengths:
    """Estimates E[L | L > k] from finished texts; by the memoryless prior, PRIOR_TOKENS more follow after any k tokens.

    A text truncated by its max_tokens counts with its truncated length, so long texts are a little underrated.
    """

    def __init__(self, prior_tokens: float = PRIOR_TOKENS, max_texts: int = MAX_TEXTS) -> None:
        if not prior_tokens > 0.0 or max_texts < 1:
            raise ConfigError(f"{prior_tokens} tokens expected, {max_texts} texts kept: both must be more than 0")
        self.prior_tokens = prior_tokens
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []
        self._sums: list[int] = [0]  # total lengths of the shortest 0, 1, 2, ... texts
        self._max_texts = max_texts

    def observe(self, num_tokens: int) -> None:
        """Records a finished text; ignores one without tokens."""
        if num_tokens < 1:
            return
        if len(self._recent) == self._max_texts:
            oldest = self._recent.popleft()
            del self._sorted[bisect_right(self._sorted, oldest) - 1]
        self._recent.append(num_tokens)
        insort(self._sorted, num_tokens)
        self._sums = list(accumulate(self._sorted, initial=0))

    def expected(self, num_so_far: int, max_tokens: float = math.inf) -> float:
        """Expected total length of a text that continues after `num_so_far` tokens; it ends at `max_tokens`."""
        num_shorter = bisect_right(self._sorted, num_so_far)
        prior = min(num_so_far + self.prior_tokens, max_tokens)
        num_texts = len(self._sorted) - num_shorter + PRIOR_TEXTS
        return max(float(num_so_far), (self._sum_from(num_shorter, max_tokens) + PRIOR_TEXTS * prior) / num_texts)

    def remaining(self, num_so_far: int, max_tokens: float = math.inf) -> float:
        """Expected remaining tokens of a continuing text."""
        return self.expected(num_so_far, max_tokens) - num_so_far

    def _sum_from(self, first: int, max_tokens: float) -> float:
        """Sum of the sorted lengths from index `first` on, each limited to `max_tokens`."""
        num_within = max(first, bisect_right(self._sorted, max_tokens))
        num_cut = len(self._sorted) - num_within
        return self._sums[num_within] - self._sums[first] + (num_cut * max_tokens if num_cut else 0)
