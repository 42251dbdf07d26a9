"""n-gram indexes to draft from: one of many finished texts, and one of a session's own growing text."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from operator import eq

from goodspeed.errors import ConfigError
from goodspeed.ngram.chains import MAX_ORDER, MAX_PLACES, Chains, Found

MIN_SEGMENT, MAX_SEGMENT = 1 << 10, 1 << 18
"""Bounds of a segment's tokens. A new segment has room for twice the index's tokens, so that few texts take little
memory; the largest takes 3 MiB."""

MIN_SHARED = 256
"""Least tokens of a shared beginning that is left out, and the steps of its length."""

COMPARED = 32
"""Known tokens that `GrowingText.follow` compares, before the new ones."""

FULL = 2
"""Most tokens per bucket of a growing text; beyond that the text is rehashed into four times as many buckets."""


class _Segment:
    """Whole texts in one array. oldest: position where the oldest text that is not dropped begins."""

    __slots__ = ("chains", "lengths", "oldest")

    def __init__(self, num_tokens: int) -> None:
        self.chains = Chains(num_tokens)
        self.lengths: deque[int] = deque()
        self.oldest = 1

    @property
    def num_free(self) -> int:
        return self.chains.num_buckets - len(self.chains.tokens)


class NgramIndex:
    """Whole texts of at most max_tokens in total; the oldest texts are dropped whole.

    The texts are in segments of up to 256k tokens, each with its own hash table. Dropping a text only moves `oldest`,
    and a segment without texts is freed. Nothing is ever copied or rehashed, so `add` takes time linear in its text.
    """

    def __init__(self, max_tokens: int = 1_000_000) -> None:
        if max_tokens < 1:
            raise ConfigError(f"max_tokens {max_tokens} is too small; it must be at least 1")
        self.max_tokens = max_tokens
        self.num_tokens = 0
        self.num_texts = 0
        self._segments: deque[_Segment] = deque()
        self._blocks: list[int] = []  # hashes of the newest whole text, MIN_SHARED tokens each
        self._num_dropped = 0
        self._root = 0  # number of the text that begins as the newest one

    def add(self, tokens: Sequence[int]) -> None:
        """Adds a text, in about 0.3 us per token; of one longer than max_tokens only the end.

        Of a long beginning that is that of the newest text only the end is added: choices share their prompt, and a
        conversation's next turn repeats all before.
        """
        tokens = tokens[-self.max_tokens :]
        if not tokens:
            return
        blocks = [_hash(tokens[at : at + MIN_SHARED]) for at in range(0, len(tokens) - MIN_SHARED + 1, MIN_SHARED)]
        first = self._first_new(blocks)
        while self.num_tokens + len(tokens) - first > self.max_tokens:
            self.drop_oldest()
            first = self._first_new(blocks)
        self._blocks, self._root = blocks, self._root if first else self._num_dropped + self.num_texts
        tokens = tokens[first:]
        segment = self._segment_for(len(tokens))
        segment.chains.append(tokens)
        segment.chains.end_text()
        segment.lengths.append(len(tokens))
        self.num_tokens += len(tokens)
        self.num_texts += 1

    def drop_oldest(self) -> int:
        """Drops the oldest text; returns its length; 0: there is none."""
        if not self._segments:
            return 0
        segment = self._segments[0]
        length = segment.lengths.popleft()
        segment.oldest += length + 1
        self.num_tokens -= length
        self.num_texts -= 1
        self._num_dropped += 1
        if not segment.lengths:
            self._segments.popleft()
        return length

    def _first_new(self, blocks: Sequence[int]) -> int:
        """Returns where a text's new part begins: MAX_ORDER tokens before the end of a shared beginning."""
        if self._root < self._num_dropped:
            return 0
        num_shared = sum(1 for _ in takewhile(bool, map(eq, blocks, self._blocks)))
        return max(0, MIN_SHARED * num_shared - MAX_ORDER)

    def match(self, end: array[int], found: Found) -> None:
        """Adds the newest `MAX_PLACES` places whose preceding tokens match those of `end`, by match length."""
        num_left = MAX_PLACES
        for segment in reversed(self._segments):
            num_left -= segment.chains.match(end, segment.oldest, num_left, found)
            if not num_left:
                return

    def _segment_for(self, length: int) -> _Segment:
        if not self._segments or self._segments[-1].num_free <= length:
            size = min(max(2 * self.num_tokens, MIN_SEGMENT), MAX_SEGMENT, self.max_tokens)
            self._segments.append(_Segment(max(size, length + 2)))
        return self._segments[-1]


def _hash(tokens: Sequence[int]) -> int:
    return hash(array("i", tokens).tobytes())


class GrowingText:
    """A session's growing text, prompt included, whose end is matched against its earlier part."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self._begin(tokens)

    def __len__(self) -> int:
        return len(self._chains.tokens) - 1

    def follow(self, tokens: Sequence[int]) -> None:
        """Updates to the session's current whole text: appends the new tokens, in about 0.3 us each.

        If the known text is not a prefix of `tokens`, the index is rebuilt. Only the final `COMPARED` known tokens are
        compared, so that long texts take no longer; an undetected difference costs a few drafts.
        """
        known = len(self)
        begins_alike = array("i", tokens[max(known - COMPARED, 0) : known]) == self.end(COMPARED)
        if begins_alike and len(tokens) >= known and len(tokens) <= FULL * self._chains.num_buckets:
            self._chains.append(tokens[known:])
        else:
            self._begin(tokens)

    def match(self, end: array[int], found: Found) -> None:
        """Adds the newest `MAX_PLACES` places in `tokens` whose preceding tokens match those of `end`."""
        self._chains.match(end, 0, MAX_PLACES, found)

    @property
    def tokens(self) -> array[int]:
        """The text after one `BORDER`. `draft` appends its tokens temporarily, since a match may continue into them."""
        return self._chains.tokens

    def end(self, num_tokens: int) -> array[int]:
        return self._chains.tokens[max(len(self) - num_tokens, 0) + 1 :]

    def _begin(self, tokens: Sequence[int]) -> None:
        self._chains = Chains(2 * len(tokens))
        self._chains.append(tokens)
