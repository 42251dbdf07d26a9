"""What a draft model's confidence says about its tokens being accepted (AdaSpec's confidence prior, simplified).

Under the match rule both models draw with one noise, so that even a token of which the draft model is unsure is often
the target's own: on the embedded models at T = 1 half of those with a probability below 0.05 were, about 0.7 of those
between 0.1 and 0.6, and nearly all above 0.9.
"""

from torch import Tensor

AT_NO_CONFIDENCE = 0.4
"""Measured with `tiny-draft-s`; from there to 1 in a line. Lower values stop drafts too soon at T = 1."""


def acceptance_chances(logits: Tensor, tokens: Tensor) -> Tensor:
    """Chances [batch] that the tokens [batch] drawn from logits [batch, vocab] are accepted.

    The model's own probabilities count, before temperature and truncation: at temperature 0, too, they tell what is
    doubtful.
    """
    confidence = logits.softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)  # quicker than by way of logsumexp
    return AT_NO_CONFIDENCE + (1.0 - AT_NO_CONFIDENCE) * confidence
