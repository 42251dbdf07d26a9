"""Tells whether a text may end where it is."""

from collections.abc import Sequence

from goodspeed.constraint.matcher import ANY, Matcher


def may_end(matcher: Matcher, output: Sequence[int], end: int) -> bool:
    """True if the grammar allows `end`, an EOS token, after the output."""
    row = matcher.allowed(output)[0]
    return bool((row != ANY).any() and row.view("u4")[end // 32] >> end % 32 & 1)
