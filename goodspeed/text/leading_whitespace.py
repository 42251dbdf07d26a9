"""The answer of a chat without the blank that it would begin with. Knows nothing about tokens or templates.

Where a chat template ends in `Assistant:`, the model's first token is ` Sure`: that blank belongs to the template's
form and not to what is said. So whitespace before the first other character is left out, however the text is cut.
"""


class Leading:
    """Takes a text in pieces and gives it without the whitespace that it begins with."""

    def __init__(self, *, is_left_out: bool) -> None:
        self._is_left_out = is_left_out  # as yet

    def push(self, text: str) -> str:
        """What is left of the next piece."""
        if not self._is_left_out:
            return text
        text = text.lstrip()
        self._is_left_out = not text
        return text
