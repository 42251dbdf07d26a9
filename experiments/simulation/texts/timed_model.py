"""A draft model of the simulated world with the time that its steps take, and the probability that it claims."""

from collections.abc import Mapping

from draft_node.core.actions import Propose, Proposed
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.models import DraftModel
from goodspeed.exact.positions import certain
from goodspeed.fair.round_time import CostModel


class TimedModel:
    """Answers proposals as `draft_node/model/drafter.py` does."""

    def __init__(self, model: DraftModel, acceptances: Mapping[bytes, Acceptance], cost: CostModel) -> None:
        self._model = model
        self._acceptances = acceptances
        self._cost = cost

    def forget(self, session_id: bytes) -> None:
        """The text is over."""
        self._model.forget(session_id)

    def answer(self, wanted: Propose, sharing: int, *, failed: bool) -> tuple[Proposed, float]:
        """Returns what comes of a Propose, and the seconds that it takes. failed: no tokens come of it.

        Steps of the draft model are shared by all proposals in the making, as many as there are at the beginning. The
        first step feeds what the cache lacks, and draws the first token.
        """
        context_len = len(wanted.tokens)
        seconds = self._cost.round_s(self._model.num_new(wanted) + sharing - 1, sharing, sharing * context_len)
        step_s = self._cost.round_s(sharing, sharing, sharing * context_len)
        by_match = wanted.request.verification == "match"
        claimed = self._claims(wanted, wanted.least_probability if by_match else 0.0)
        seconds += max(0, min(wanted.length, len(claimed)) - 1) * step_s
        tokens = () if failed else self._model.propose(wanted)[: len(claimed)]
        proposed = Proposed(
            wanted.request.session_id,
            wanted.epoch,
            wanted.round,
            tokens,
            proposal=None if by_match else certain(tokens),
            probabilities=claimed[: len(tokens)] if by_match else (),
            alternatives=self._model.alternatives(wanted, tokens) if wanted.wants_alternatives else (),
        )
        return proposed, seconds

    def _claims(self, wanted: Propose, least_probability: float) -> tuple[float, ...]:
        """The probability that the draft model claims of each token, until their product is below what is worth it.

        With the token that makes them so low the draft ends, as in `draft_node/model/drafter.py`.
        """
        acceptance, position = self._acceptances[wanted.request.session_id], len(wanted.tokens)
        claims: list[float] = []
        path_probability = 1.0
        while len(claims) < wanted.length and (path_probability >= least_probability or not claims):
            claims.append(acceptance.probabilities(position + len(claims), len(claims)))
            path_probability *= claims[-1]
        return tuple(claims)
