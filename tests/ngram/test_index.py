"""The bounds of an index, and how a growing text follows its session."""

import random
import tracemalloc

import pytest

from goodspeed.ngram import index
from goodspeed.ngram.chains import MAX_ORDER
from goodspeed.ngram.index import MIN_SHARED, GrowingText, NgramIndex
from goodspeed.ngram.matching import find
from tests.ngram.reference import texts_of


def test_the_oldest_texts_are_dropped_whole(monkeypatch):
    monkeypatch.setattr(index, "MIN_SEGMENT", 64)  # so that segments are begun and freed
    monkeypatch.setattr(index, "MAX_SEGMENT", 64)
    rng = random.Random(0)
    found, kept = NgramIndex(300), []
    for _ in range(400):
        kept.append([rng.randrange(9) for _ in range(rng.randrange(1, 60))])
        found.add(kept[-1])
        while sum(map(len, kept)) > 300:
            kept.pop(0)
        assert texts_of(found) == kept
        assert (found.num_tokens, found.num_texts) == (sum(map(len, kept)), len(kept))
    assert len(found._segments) <= 11


def test_what_was_dropped_drafts_no_more():
    found = NgramIndex(8)
    found.add([1, 2, 3, 4])
    found.add([5, 6, 7, 8])
    assert find(GrowingText([1, 2]), [found])
    found.add([9])
    assert not find(GrowingText([1, 2]), [found])
    assert find(GrowingText([5, 6]), [found])
    found = NgramIndex(5)  # of a text beyond the bound the end is kept
    found.add(range(9))
    found.add([])
    assert texts_of(found) == [[4, 5, 6, 7, 8]]


@pytest.mark.thorough
@pytest.mark.parametrize("num_texts", [20, 2_000])
def test_at_most_64_bytes_a_token(num_texts):
    """Texts of 150 tokens, most of them frequent ones; 17 bytes a token with few texts, 15 with many."""
    rng = random.Random(0)
    texts = [[int(rng.paretovariate(0.6)) % 4096 for _ in range(150)] for _ in range(num_texts)]
    tracemalloc.start()
    try:
        found = NgramIndex(100_000)
        for text in texts:
            found.add(text)
        num_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_bytes <= 64 * found.num_tokens


def test_a_text_appends_what_is_new_and_begins_anew_where_it_differs():
    text = GrowingText([1, 2, 3])
    buckets = text._chains
    text.follow((1, 2, 3, 4))
    assert text._chains is buckets
    assert text.tokens.tolist() == [-1, 1, 2, 3, 4]
    for other in ([1, 2, 3], [1, 2, 9, 4, 5], [7], []):
        text.follow(other)
        assert text.tokens.tolist() == [-1, *other]
        assert len(text) == len(other)


def test_a_long_text_gets_more_buckets():
    text = GrowingText()
    few = text._chains.num_buckets
    for length in range(0, 5_000, 10):
        text.follow([number % 50 for number in range(length)])
    assert len(text) / 2 <= text._chains.num_buckets
    assert few < 100


def test_a_long_beginning_is_kept_once():
    """Choices share their prompt, and a conversation's next turn repeats all before."""
    rng = random.Random(0)
    prompt, other = ([rng.randrange(1000) for _ in range(2 * MIN_SHARED + 9)] for _ in range(2))
    found = NgramIndex()
    for text in ([*prompt, 1, 2, 3], [*prompt, 4, 5, 6], [*prompt, 4, 5, 6, 7, 8], other):
        found.add(text)
    repeated = prompt[2 * MIN_SHARED - MAX_ORDER :]
    assert texts_of(found) == [[*prompt, 1, 2, 3], [*repeated, 4, 5, 6], [*repeated, 4, 5, 6, 7, 8], other]
    assert find(GrowingText(prompt[:9]), [found])
    assert find(GrowingText([*prompt[-5:], 4, 5, 6]), [found])


@pytest.mark.parametrize("is_last", [False, True])
def test_a_beginning_that_was_dropped_is_added_again(is_last):
    text = [*range(300)]
    found = NgramIndex(900)
    for each in (text, [*text, 1], [*text, 2]) if not is_last else (text,):
        found.add(each)
    found.drop_oldest()
    found.add(text)
    assert texts_of(found)[-1] == text


def test_a_beginning_that_has_to_go_for_its_own_end_is_added_with_it():
    text = [*range(600)]
    found = NgramIndex(700)
    found.add(text[:520])
    found.add(text + [0] * 100)
    assert texts_of(found) == [text + [0] * 100]
