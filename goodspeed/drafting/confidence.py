"""The probability that a drafted token is accepted by the match rule, from the draft model's confidence in it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nodes without torch use the constants
    from torch import Tensor

AT_NO_CONFIDENCE = 0.4
"""Acceptance probability of a token with draft probability 0; linear from there to 1 (AdaSpec's confidence prior).

Both models draw with the same noise, so that the target often draws even an improbable token of the draft model. At
T = 1, with `tiny-draft-s`, half of the tokens below 0.05 were accepted, about 0.7 of those between 0.1 and 0.6, and
nearly all above 0.9. Lower values stop drafts too soon."""

BEHIND_MASKS = 0.25
"""The same for a token drawn after masks, whose probability does not depend on the tokens that the masks stand for.

With `tiny-draft-p`, at T = 0 and 1, 0.3 and 0.4 of the tokens below 0.3 were accepted and nearly all above 0.9, whether
one mask stood before them or seven."""


def acceptance_probabilities(probs: "Tensor", tokens: "Tensor", are_behind_masks: Sequence[bool] = ()) -> "Tensor":
    """Returns acceptance probabilities [batch] of drawn tokens [batch] under the match rule.

    probs [batch, vocab]: the model's before temperature and truncation, which show doubt even at temperature 0.
    are_behind_masks: of each token; none of them by default.
    """
    confidence = probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    if not any(are_behind_masks):
        return AT_NO_CONFIDENCE + (1.0 - AT_NO_CONFIDENCE) * confidence
    least = confidence.new_tensor([BEHIND_MASKS if each else AT_NO_CONFIDENCE for each in are_behind_masks])
    return least + (1.0 - least) * confidence
