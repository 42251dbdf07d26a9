"""A draft model of the simulated world with the time that its steps take, and the odds that it claims.

Knows nothing about nodes or the clock: how long a proposal takes is told with it.
"""

from collections.abc import Mapping

from draft_node.core.actions import Propose, Proposed
from experiments.simulation.acceptance import Acceptance
from experiments.simulation.models import DraftModel
from goodspeed.fair.latency import CostModel


class TimedModel:
    """Answers proposals as `draft_node/model/drafter.py` does."""

    def __init__(
        self, model: DraftModel, acceptances: Mapping[bytes, Acceptance], cost: CostModel, min_odds: float | None
    ) -> None:
        """min_odds: a draft ends where the odds of all of it are below; None: as the verify node says."""
        self._model = model
        self._acceptances = acceptances
        self._cost = cost
        self._min_odds = min_odds

    def forget(self, session_id: bytes) -> None:
        """The text is over."""
        self._model.forget(session_id)

    def answer(self, wanted: Propose, sharing: int, *, failed: bool) -> Proposed:
        """Returns what comes of a Propose, with the seconds that it takes. failed: no tokens come of it.

        Steps of the draft model are shared by all proposals in the making, as many as there are at the beginning. The
        first step feeds what the cache lacks, and draws the first token.
        """
        context_len = len(wanted.tokens)
        seconds = self._cost.round_s(self._model.num_new(wanted) + sharing - 1, sharing, sharing * context_len)
        step_s = self._cost.round_s(sharing, sharing, sharing * context_len)
        claimed, path_odds = self._claims(wanted, self._least_odds(wanted))
        seconds += max(0, min(wanted.length, len(claimed)) - 1) * step_s
        tokens = () if failed else self._model.propose(wanted)[: len(claimed)]
        guess, tokens = (tokens[0], tokens[1:]) if wanted.ahead and tokens else (None, tokens)
        return Proposed(
            wanted.request.session_id,
            wanted.epoch,
            wanted.round,
            tokens,
            drafting_s=seconds,
            guess=guess,
            odds=path_odds,
            chances=claimed[len(claimed) - len(tokens) :] if wanted.wants_chances else None,
            alternatives=self._model.alternatives(wanted, tokens) if wanted.wants_alternatives else (),
        )

    def _least_odds(self, wanted: Propose) -> float:
        """As in `draft_node/model/drafter.py`; where nothing is said a draft never ends early."""
        if self._min_odds is not None:
            return self._min_odds
        return wanted.least_odds if wanted.wants_chances else 0.0

    def _claims(self, wanted: Propose, least: float) -> tuple[tuple[float, ...], float]:
        """The odds that the draft model claims, of each token until they are below what is worth it; and their product.

        With the token that makes them so low the draft ends, as in `draft_node/model/drafter.py`.
        """
        acceptance, position = self._acceptances[wanted.request.session_id], len(wanted.tokens)
        claims: list[float] = []
        path_odds = 1.0
        while len(claims) < wanted.length and (path_odds >= least or not claims):
            claims.append(acceptance.odds(position + len(claims), len(claims)))
            path_odds *= claims[-1]
        return tuple(claims), path_odds if wanted.wants_chances or least else 1.0
