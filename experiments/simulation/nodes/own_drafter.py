"""A draft model on the verify node's own GPU: its passes make rounds longer.

What the simulated draft nodes call their model's is then drafted at the verify node, just before the round that
verifies it and exactly as far as that. A real one drafts some tokens that no round takes, so this is its best case.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.simulation.settings import Settings
from goodspeed.exact import trees
from goodspeed.fair.round_time import CostModel
from verify_node.scheduler.round import Entry, Round


def drafting_s(settings: Settings, planned: Round) -> float:
    """Seconds of the draft model's passes for a round.

    Pass d drafts for all sessions that draft d tokens or more. The first also feeds the target's own last token.
    """
    cost = settings.own_draft_cost
    if cost is None:
        return 0.0
    drafts = [(_depth(entry), entry.start) for entry in planned.entries if entry.source == "model"]
    seconds = 0.0
    deepest = max((depth for depth, _ in drafts), default=0)
    if settings.parallel_decay is not None:
        num_rows = sum(depth for depth, _ in drafts) + len(drafts)
        return cost.round_s(num_rows, len(drafts), sum(start for _, start in drafts)) if deepest else 0.0
    for depth in range(1, deepest + 1):
        starts = [start for own, start in drafts if own >= depth]
        seconds += cost.round_s(len(starts) * (2 if depth == 1 else 1), len(starts), sum(starts))
    return seconds


def _depth(entry: Entry) -> int:
    """Passes that an entry's draft took; alternatives are second choices of the same passes."""
    return entry.num_drafted if entry.parents is None else max(trees.depths(entry.parents))


def best_length(settings: Settings, rates: Sequence[float], num_sessions: int, context_tokens: float, most: int) -> int:
    """The draft length up to `most` with which sessions get the most tokens a second; 0: drafting does not pay.

    rates: acceptance of each kind of text, of which there are equally many.
    """
    cost, decay = priced(settings), 1.0 if settings.parallel_decay is None else settings.parallel_decay
    path_probabilities, expected = np.ones(len(rates)), 1.0
    speeds = [1.0 / cost.round_s(num_sessions, num_sessions, context_tokens)]
    for length in range(1, most + 1):
        path_probabilities *= np.array(rates) * decay ** (length - 1)
        expected += float(path_probabilities.mean())
        speeds.append(expected / cost.round_s(num_sessions * (1 + length), num_sessions, context_tokens))
    return int(np.argmax(speeds))


def priced(settings: Settings) -> CostModel:
    """The profile by which the verify node chooses what to verify."""
    own = settings.own_draft_cost
    if own is None:
        return settings.round_cost
    return WithDrafting(settings.round_cost, own, settings.max_draft, settings.parallel_decay is not None)


@dataclass(frozen=True, slots=True)
class WithDrafting(CostModel):
    """A round with its drafting, where all sessions draft equally far, some one token further."""

    target: CostModel
    draft: CostModel
    max_draft: int  # more tokens of a session are of its prompt
    is_parallel: bool

    def _seconds(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        sessions = np.maximum(1, num_sessions)
        drafted = np.clip(num_tokens - sessions, 0, self.max_draft * sessions)
        target_s = self.target.round_s(num_tokens, num_sessions, context_tokens)
        if self.is_parallel:
            return target_s + (drafted > 0) * self.draft.round_s(sessions + drafted, sessions, context_tokens)
        whole = drafted // sessions
        rest = drafted - whole * sessions
        last_s = (rest > 0) * self.draft.round_s(rest, rest, context_tokens * rest / sessions)
        return target_s + whole * self.draft.round_s(sessions, sessions, context_tokens) + last_s
