"""What proposals may draw whose texts have a form to keep: the verify node's masks, so that drafts agree with them.

The verify node decides the text by its own masks. So a form that cannot be compiled here costs only acceptance. Knows
nothing about logits.
"""

from draft_node.model.job import Job
from goodspeed.constraint.masks import Matchers
from goodspeed.errors import GrammarError
from goodspeed.exact.masks import Words


def allowed(matchers: Matchers | None, job: Job) -> Words | None:
    """Returns the bits of what a job may draw next [1, num_words]; None where that is any token."""
    request = job.propose.request
    if matchers is None or request.constraint is None:
        return None
    if not job.propose.local and not matchers.grammars.holds(request.session_id, request.constraint):
        return None  # what this model writes alone keeps the form; else no thread of a model compiles
    try:
        matcher = matchers.of(request.session_id, request.constraint, request.stop_ids)
    except GrammarError:
        return None
    return matcher.allowed(job.tokens[len(request.prompt) :])
