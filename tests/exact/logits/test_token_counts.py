"""Counts of a text that grows and shrinks: by hand, and as counting anew has it."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from goodspeed.exact.logits.token_counts import CountedTexts, TextCounts


def told(counts: TextCounts) -> dict[int, tuple[int, int]]:
    """Returns how often each token that is there is in prompt and output."""
    rows = zip(counts.tokens.tolist(), counts.in_prompt.tolist(), counts.in_output.tolist(), strict=True)
    return {token: (prompt, output) for token, prompt, output in rows if prompt or output}


def test_by_hand():
    counts = TextCounts.of([5, 5, 7], [7, 9])
    assert told(counts) == {5: (2, 0), 7: (1, 1), 9: (0, 1)}
    assert counts.tokens[counts.places([9, 5])].tolist() == [9, 5]
    assert counts.places([8]).tolist() == [-1]


texts = st.lists(st.lists(st.integers(0, 200), max_size=100).map(tuple), min_size=1, max_size=4)


@given(texts, st.integers(0, 40), st.data())
def test_any_text_after_any_other_is_counted_as_if_it_were_the_first(texts, prompt_len, data):
    counts = TextCounts(prompt_len)
    last: tuple[int, ...] = ()
    for text in texts:
        last = (*last[: data.draw(st.integers(0, len(last)))], *text)
        counts.go_to(last)
        prompt, output = Counter(last[:prompt_len]), Counter(last[prompt_len:])
        assert told(counts) == {token: (prompt[token], output[token]) for token in last}
        assert len(set(counts.tokens.tolist())) == len(counts.tokens)


def test_texts_are_told_apart_by_key_and_forgotten():
    kept = CountedTexts()
    first = kept.of("a", (1, 2), 1)
    assert told(kept.of("b", (3,), 1)) == {3: (1, 0)}
    assert kept.of("a", (1, 2, 2), 1) is first
    assert told(first) == {1: (1, 0), 2: (0, 2)}
    assert told(kept.of("a", (1, 2, 2), 2)) == {1: (1, 0), 2: (1, 1)}
    kept.keep({"a"})
    kept.forget("c")
    assert len(kept._kept) == 1
