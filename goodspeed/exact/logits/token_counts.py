"""Token counts of a text, updated incrementally when tokens are appended to the text or removed from its end."""

from collections.abc import Container, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

_PROMPT, _OUTPUT = 0, 1


class TextCounts:
    """The distinct tokens of a text, with their counts in prompt and output; `go_to` switches to another text."""

    def __init__(self, prompt_len: int = 0) -> None:
        self._prompt_len = prompt_len
        self._text: tuple[int, ...] = ()
        self._places: dict[int, int] = {}  # index by token; a token with count 0 retains its index
        self._tokens = np.zeros(64, np.int64)  # [num_places], and spare capacity
        self._counts = np.zeros((2, 64), np.int64)

    @classmethod
    def of(cls, prompt: Sequence[int], output: Sequence[int]) -> "TextCounts":
        counts = cls(len(prompt))
        counts.go_to((*prompt, *output))
        return counts

    @property
    def tokens(self) -> NDArray[np.int64]:
        return self._tokens[: len(self._places)]

    @property
    def in_prompt(self) -> NDArray[np.int64]:
        return self._counts[_PROMPT, : len(self._places)]

    @property
    def in_output(self) -> NDArray[np.int64]:
        return self._counts[_OUTPUT, : len(self._places)]

    def places(self, tokens: Sequence[int]) -> NDArray[np.int64]:
        """Returns the index of each argument in the property `tokens`, or -1 for an unknown token."""
        return np.array([self._places.get(token, -1) for token in tokens], np.int64)

    def go_to(self, text: tuple[int, ...]) -> None:
        """Switches to this text: recounts from the first position where the two texts differ."""
        if text is self._text:
            return
        kept = num_common(self._text, text)
        self._count(self._text, kept, -1)
        self._count(text, kept, 1)
        self._text = text

    def _count(self, text: tuple[int, ...], first: int, step: int) -> None:
        output_first = max(first, self._prompt_len)
        for row, part in ((_PROMPT, text[first : self._prompt_len]), (_OUTPUT, text[output_first:])):
            if part:
                tokens, counts = np.unique(np.array(part, np.int64), return_counts=True)
                self._counts_at(row, tokens.tolist(), step * counts)

    def _counts_at(self, row: int, tokens: list[int], added: NDArray[np.int64]) -> None:
        self._make_room(len(self._places) + len(tokens))
        for token in tokens:
            place = self._places.setdefault(token, len(self._places))
            self._tokens[place] = token
        self._counts[row, self.places(tokens)] += added

    def _make_room(self, num_places: int) -> None:
        lacking = num_places - len(self._tokens)
        if lacking > 0:
            more = max(lacking, len(self._tokens))
            self._tokens = np.pad(self._tokens, (0, more))
            self._counts = np.pad(self._counts, ((0, 0), (0, more)))


class CountedTexts:
    """Counts of several growing texts, by key. A cache: lost entries cost time only. Not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[int, TextCounts]] = {}

    def of(self, key: Hashable, text: tuple[int, ...], prompt_len: int) -> TextCounts:
        """Returns the counts of this text; valid until the next call with the same key."""
        known_len, counts = self._kept.get(key, (prompt_len, None))
        if counts is None or known_len != prompt_len:
            counts = TextCounts(prompt_len)
            self._kept[key] = (prompt_len, counts)
        counts.go_to(text)
        return counts

    def keep(self, keys: Container[Hashable]) -> None:
        """Drops the counts of all other keys."""
        for key in [key for key in self._kept if key not in keys]:
            self.forget(key)

    def forget(self, key: Hashable) -> None:
        self._kept.pop(key, None)


def num_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the common prefix."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), shorter)
