"""Which tokens of a prompt a round tells the logprobs of: those that follow the tokens of the prompt that are fed.

A row of logits is as wide as the vocabulary, so a round has at most MAX_PROMPT_ROWS of them for prompts. What is known
of a prompt already has no rows again: after a preemption it is only read. Knows nothing about tensors.
"""

from verify_node.packing.round import PromptRows
from verify_node.session.session import Session

MAX_PROMPT_ROWS = 256
"""Rows of logits for prompts in one round: 156 MB with a vocabulary of 152,000."""


def prompt_rows(session: Session, start: int, num_tokens: int) -> PromptRows | None:
    """The rows that are new where num_tokens of its text are fed from position `start` on; None where none are."""
    num_top, known = session.opened.num_prompt_logprobs, session.prompt_logprobs
    if num_top is None or known is None:
        return None
    prompt = session.opened.prompt
    first, end = len(known), min(start + num_tokens, len(prompt) - 1)
    return PromptRows(first, prompt[first + 1 : end + 1], num_top) if first < end else None
