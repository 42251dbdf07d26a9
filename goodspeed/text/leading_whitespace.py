"""Removes the whitespace at the beginning of a chat's answer. Knows nothing about tokens or templates.

Where a chat template ends in `Assistant:`, the model's first token is ` Sure`: that blank belongs to the template, not
to the answer.
"""


class LeadingWhitespace:
    """Takes a text in pieces, and gives out its pieces without the text's leading whitespace."""

    def __init__(self, *, is_left_out: bool) -> None:
        self._is_left_out = is_left_out  # as yet

    def push(self, text: str) -> str:
        """Returns what is left of the next piece."""
        if not self._is_left_out:
            return text
        text = text.lstrip()
        self._is_left_out = not text
        return text
