"""Estimates a text's remaining tokens from its client's finished texts, mainly those with equally long prompts."""

import math
from collections import deque

import numpy as np

PRIOR_TOKENS = 128.0
"""Expected length of a text without any evidence; chats have about 200 tokens, completions of code 30."""

PRIOR_TEXTS = 2.0
"""Weight, in finished texts, of the prior in the mean of all texts, and of that mean in the mean of texts with
similarly long prompts."""

MAX_TEXTS = 256
"""Most texts that are remembered; the oldest are dropped."""

LIKENESS = 0.1
"""A prompt whose length differs by this share has weight 0.6, by three times this share 0.01.

Equally long prompts are often of one template. Of 0.1 to 0.5, 0.1 was best for the chats of `laps_sd`."""


class OutputLengths:
    """Estimates E[L | L > k] from finished texts; by the memoryless prior, PRIOR_TOKENS more follow after any k tokens.

    A text truncated by its max_tokens counts with its truncated length, so long texts are slightly underestimated.
    """

    def __init__(self) -> None:
        self._texts: deque[tuple[int, int]] = deque(maxlen=MAX_TEXTS)  # tokens of the prompt, and written
        self._lengths = np.zeros(0)
        self._log_prompts = np.zeros(0)

    def observe(self, num_tokens: int, prompt_tokens: int) -> None:
        """Records a finished text; ignores one without tokens."""
        if num_tokens < 1:
            return
        self._texts.append((prompt_tokens, num_tokens))
        known = np.array(self._texts, dtype=np.float64)  # [num_texts, 2]
        self._log_prompts, self._lengths = np.log(known[:, 0] + 1.0), known[:, 1]

    def remaining(self, num_so_far: int, prompt_tokens: int, max_tokens: float = math.inf) -> float:
        """Returns how many tokens are expected after `num_so_far` of a continuing text; it ends at `max_tokens`."""
        longer = self._lengths > num_so_far
        lengths = np.minimum(self._lengths[longer], max_tokens)
        prior = min(num_so_far + PRIOR_TOKENS, max_tokens)
        of_all = (float(lengths.sum()) + PRIOR_TEXTS * prior) / (lengths.size + PRIOR_TEXTS)
        apart = (self._log_prompts[longer] - math.log(prompt_tokens + 1.0)) / LIKENESS
        weights = np.exp(-0.5 * apart * apart)
        alike = (float(weights @ lengths) + PRIOR_TEXTS * of_all) / (float(weights.sum()) + PRIOR_TEXTS)
        return max(0.0, alike - num_so_far)
