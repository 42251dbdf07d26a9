"""A model of round time that learns from finished rounds.

It learns two numbers: how much slower the machine is than modelled, and the additional time of each token (sampling and
verification, which a profile of the forward pass does not include). It learns only two, because the rounds of a running
node are similar: four coefficients would drift in every direction that the rounds do not cover. For the same reason,
the time of a token is held, and slowly forgotten, while rounds have one size: rounds of one token each, with a context
that grows, once raised it tenfold, after which no drafted token seemed worth its time.
"""

from typing import Any

import numpy as np

from goodspeed.fair.round_time import CostModel, Linear

MEMORY = 40
"""Rounds after which an observation's weight is 1/e; determines how fast the model follows the machine's speed."""

FIRST_ROUNDS = 8
"""Number of first rounds that are not checked for outliers if there is no profile."""

PROFILE_ROUNDS = 8.0
"""Weight of a profile in rounds, so that one slow round at the start does not override it."""

LARGEST_SURPRISE = 0.5
"""Relative deviation beyond which an observation is clipped as a possible outlier, or USUAL_ERRORS times the usual
error if that is more. A real change repeats itself."""

USUAL_ERRORS = 4.0
INERTIA = 0.02
"""Regularisation towards the present solution, as a share of the evidence: directions without evidence do not move."""

SCALE_FIRST = 10.0
"""Factor by which errors are attributed more to the machine's scale than to the tokens; still more while rounds are
alike."""

MOST_SURPRISE = 1e3
"""Largest relative deviation with which an observation counts, above or below the prediction, outlier or not."""

VARIED, LEAST_VARIED = 0.1, 1e-4
"""Share of the tokens' second moment that is variance, from which on rounds vary enough to tell what a token takes; and
the least share of that with which the hold on `token_s` is computed."""

WORK_ALONE = 16
"""The node's own work for a round is as if it had so many sessions more: 1 ms was measured for one, 8 ms for 100."""

WORK_STEP, MOST_WORK = 0.2, 4.0
"""Weight of a round's own work in the smoothed one, and the most of it that counts, relative to that."""

SHORTEST_S, LONGEST_S = 1e-8, 1e5
"""Bounds of a plausible round time in seconds, modelled or observed."""

SMALLEST_SCALE, LARGEST_SCALE = SHORTEST_S, LONGEST_S / SHORTEST_S
"""Bounds of the scale: model and rounds can both be wrong by the whole range of a round time."""


class Refined(CostModel):
    """round_s = scale x model + token_s x tokens; learns both numbers by least squares with exponential forgetting.

    Errors are relative to the prediction. Without a model, every round is assumed to take equally long (1 s before the
    first one), so time affects no choice; each round then refines the assumption. Costs some 15 microseconds a round.
    """

    def __init__(
        self,
        model: CostModel | None = None,
        *,
        reads_per_row: bool = False,
        change_rows: float = 0.0,
        least_rows: int = 1,
    ) -> None:
        """reads_per_row, change_rows, least_rows: as of the engine (`Engine`) whose passes the model describes."""
        self.model = model if model is not None else Linear(fixed_s=1.0)
        self.profiled = model is not None
        self.reads_per_row, self.change_rows, self.least_rows = reads_per_row, change_rows, least_rows
        self.scale = 1.0
        self.token_s = 0.0
        self.num_rounds = 0
        self.usual_error = 0.0
        """Smoothed difference between a round's time and its prediction, relative to the prediction."""
        self._prompt_row, self._prompt_context = 1.0, 0.0  # as in `learn_prompts`
        self._work_each_s = 0.0  # as in `work_s`, for each session, smoothed
        self._trust = PROFILE_ROUNDS if self.profiled else 0.0
        self._moments = np.zeros((3, 4))  # decayed sums of the products of the first three of `_add`'s parts with all

    def context_tokens(self, cached_tokens: float, num_tokens: Any, num_sessions: int) -> Any:
        """Returns the `context_tokens` of a round.

        cached_tokens: before the round over all sessions. num_tokens: decoded or drafted, evenly over these sessions; a
        number, or a numpy array.
        """
        return cached_tokens * num_tokens / num_sessions if self.reads_per_row else cached_tokens

    def learn_prompts(self, row: float, context: float) -> None:
        """Takes the rows that a prompt's token takes, and those for each token before it (`Prefill`)."""
        self._prompt_row, self._prompt_context = row, context

    def prompt_rows(self, start: int, num_tokens: int) -> float:
        """Returns the rows without context that take as long as a prompt's tokens from position `start` on.

        Where cached tokens are read once for all rows of a session, or nothing was profiled, a token is one row.
        """
        if not self.reads_per_row or not self.profiled:
            return num_tokens
        return num_tokens * max(1.0, self._prompt_row + self._prompt_context * (start + num_tokens / 2))

    def work_s(self, num_sessions: int) -> float:
        """Returns the node's own work for a round beside its pass, in seconds, with so many open sessions."""
        return self._work_each_s * (num_sessions + WORK_ALONE)

    def change_s(self, num_sessions: int, context_tokens: float) -> float:
        """Returns the seconds of a change of the pass's size, from a token of each session; 0 where that costs none."""
        num_rows = max(num_sessions, self.least_rows)
        without_s, with_s = (
            self.round_s(num_rows + more, num_sessions, context_tokens) for more in (0.0, self.change_rows)
        )
        return with_s - without_s

    def _seconds(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        seconds = self.scale * self.model.round_s(num_tokens, num_sessions, context_tokens) + self.token_s * num_tokens
        return np.maximum(seconds, SHORTEST_S) if isinstance(seconds, np.ndarray) else max(seconds, SHORTEST_S)

    def observe(self, num_tokens: float, num_sessions: int, context_tokens: int, seconds: float) -> None:
        """Updates from a finished round, with the counts of `round_s`; ignores times outside SHORTEST_S to
        LONGEST_S."""
        if not SHORTEST_S < seconds < LONGEST_S:
            return  # a clock error must not stop a node
        modelled = _bounded(float(self.model.round_s(num_tokens, num_sessions, context_tokens)), SHORTEST_S, LONGEST_S)
        if not self.num_rounds and not self.profiled:
            self.scale = seconds / modelled
        predicted = max(self.scale * modelled + self.token_s * num_tokens, SHORTEST_S)
        self.num_rounds += 1
        ratio = self._believable(float(seconds) / predicted)
        self._add(1.0 / predicted, modelled / predicted, num_tokens / predicted, ratio)
        self._solve()

    def observe_work(self, seconds: float, num_sessions: int) -> None:
        """Updates `work_s` from the own work for a round with so many open sessions. One long pause hardly counts."""
        each_s, known_s = max(0.0, seconds) / (num_sessions + WORK_ALONE), self._work_each_s
        each_s = min(each_s, MOST_WORK * known_s) if known_s else each_s
        self._work_each_s += WORK_STEP * (each_s - known_s)

    def _believable(self, ratio: float) -> float:
        """Returns the observed over the predicted time, with outliers clipped symmetrically in the logarithm."""
        surprise = min(max(ratio, 1.0 / ratio) - 1.0, MOST_SURPRISE)
        largest = max(LARGEST_SURPRISE, USUAL_ERRORS * self.usual_error)
        if self.profiled or self.num_rounds > FIRST_ROUNDS:
            surprise = min(surprise, largest)
            self.usual_error += (surprise - self.usual_error) / MEMORY
        return 1.0 + surprise if ratio > 1.0 else 1.0 / (1.0 + surprise)

    def _add(self, *parts: float) -> None:
        """Adds an observation: 1, the model and the tokens, each relative to the prediction, and the observed time."""
        self._moments = (1.0 - 1.0 / MEMORY) * self._moments + np.outer(parts[:3], parts)

    def _solve(self) -> None:
        """Solves the normal equations, regularised towards the present solution, without negative coefficients.

        The less the sizes of rounds vary, the more `token_s` is held, and forgotten: then errors belong to the scale.
        """
        (one, _, by_one, _), (_, squares, both, on_model), (_, _, tokens, on_tokens) = self._moments.tolist()
        varied = min(1.0, (1.0 - by_one * by_one / (one * tokens)) / VARIED) if tokens else 1.0
        inertia = INERTIA + self._trust
        self._trust *= 1.0 - 1.0 / PROFILE_ROUNDS
        held = inertia * squares
        held_tokens = inertia * SCALE_FIRST * tokens / max(varied, LEAST_VARIED)
        a, c = squares + held, tokens + held_tokens
        p = on_model + held * self.scale
        q = on_tokens + held_tokens * self.token_s * (1.0 - (1.0 - varied) / MEMORY)
        determinant = a * c - both * both
        token_s = (a * q - both * p) / determinant if determinant > 0.0 else 0.0
        scale = (p - both * max(token_s, 0.0)) / a
        if scale < SMALLEST_SCALE and tokens:  # the tokens alone explain the times best
            token_s = on_tokens / tokens
        self.scale = _bounded(scale, SMALLEST_SCALE, LARGEST_SCALE)
        self.token_s = _bounded(token_s, 0.0, LONGEST_S)


def _bounded(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
