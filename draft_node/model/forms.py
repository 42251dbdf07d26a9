"""What proposals may draw whose texts have a form to keep: the verify node's masks, so that drafts agree with them.

The verify node decides the text by its own masks. So a form that cannot be compiled here costs only acceptance. Knows
nothing about logits.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draft_node.core.actions import Request
from draft_node.model.job import Job
from goodspeed.errors import GrammarError
from goodspeed.exact.masks import Words
from goodspeed.grammar.matcher import ANY
from goodspeed.grammar.matchers import Matchers


def allowed_rows(matchers: Matchers | None, jobs: Sequence[Job]) -> Words | None:
    """Returns the bits of what each job may draw next [num_jobs, num_words]; None where all may draw any token."""
    if matchers is None:
        return None
    found = [_row(matchers, job.propose.request, job.tokens) for job in jobs]
    masks = [row for row in found if row is not None]
    if not masks:
        return None
    free = np.full(len(masks[0]), ANY, np.int32)
    return np.stack([free if row is None else row for row in found])


def _row(matchers: Matchers, request: Request, tokens: Sequence[int]) -> NDArray[np.int32] | None:
    if request.constraint is None:
        return None
    try:
        matcher = matchers.of(request.session_id, request.constraint, request.stop_ids)
    except GrammarError:
        return None
    row: NDArray[np.int32] = matcher.allowed(tokens[len(request.prompt) :])[0]
    return row
