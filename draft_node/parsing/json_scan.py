"""Finds the end of a JSON value that arrives character by character. Knows nothing about what the value says."""

OUTSIDE = frozenset(' \t\r\n{}[]:,"-+.0123456789eEtruefalsn')
"""All characters that JSON has outside of strings."""


class JsonScan:
    """Counts brackets outside of strings; whether all between them is right is for a decoder to say."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.is_complete = False  # the bracket that began the value is closed

    def take(self, char: str) -> bool:
        """Adds a character of an object or a list; returns whether the value may still be JSON."""
        if self._in_string:
            self._in_string = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
            return True
        if char not in OUTSIDE:
            return False
        if char == '"':
            self._in_string = True
        self._depth += (char in "{[") - (char in "}]")
        self.is_complete = self._depth == 0
        return self._depth > 0 or char in "}]"
