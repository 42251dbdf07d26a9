"""Matches and the blend against plain search over all texts."""

import random
from array import array

import pytest

from goodspeed.ngram import index
from goodspeed.ngram.chains import MAX_ORDER, MAX_PLACES
from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.ngram.matching import Matches, blend, find, follow, survivors
from tests.ngram import reference

SEEDS = range(60)


def make_text(rng, most=40):
    return [rng.randrange(rng.choice((2, 3, 6))) for _ in range(rng.randrange(most))]


def index_of(texts, max_tokens=1_000_000):
    found = NgramIndex(max_tokens)
    for text in texts:
        found.add(text)
    return found


def by_order(matches):
    return {level.order: followed for level, followed in zip(matches, follow(matches, 0), strict=True)}


@pytest.mark.parametrize("seed", SEEDS)
def test_all_matches_in_earlier_texts_are_found(seed, monkeypatch):
    monkeypatch.setattr(index, "MIN_SEGMENT", 64)  # several segments
    monkeypatch.setattr(index, "MAX_SEGMENT", 128)
    rng = random.Random(seed)
    texts, text = [make_text(rng) for _ in range(20)], make_text(rng)
    matches = find(GrowingText(text), [index_of(texts)])
    own = reference.nexts(text, [text])
    expected = reference.nexts(text, texts)
    merged = {n: own.get(n, []) + expected.get(n, []) for n in {*own, *expected}}
    assert by_order(matches) == merged
    assert [level.order for level in matches] == sorted(merged, reverse=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_text_that_grows_is_matched_as_if_it_had_been_there_at_once(seed):
    rng = random.Random(seed)
    text = make_text(rng, 200)
    growing = GrowingText()
    for end in sorted(rng.randrange(len(text) + 1) for _ in range(8)):
        growing.follow(text[:end])
        assert len(growing) == end
        assert by_order(find(growing, [])) == reference.nexts(text[:end], [text[:end]])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_blend_is_the_one_of_its_definition(seed):
    rng = random.Random(seed)
    text = make_text(rng, 100)
    matches = find(GrowingText(text), [])
    banned = [1] if seed % 3 == 0 else []
    found, num_places = blend(follow(matches, 0), banned)
    expected = reference.nexts(text, [text])
    assert found == pytest.approx(reference.shares(expected, banned))
    assert num_places == sum(token not in banned for level in expected.values() for token in level)


def test_a_blend_by_hand_in_which_the_end_of_a_text_is_no_token():
    # the longest order saw 7 once: 1 / 1.5; both orders 7 twice and 8 once: 3 / (3 + 1) of what is left
    shares, num_places = blend([[7], [7, 8]])
    assert shares == pytest.approx({7: 2 / 3 + 1 / 3 * 3 / 4 * 2 / 3, 8: 1 / 3 * 3 / 4 * 1 / 3})
    assert num_places == 3
    shares, num_places = blend([[-1], [5, -1, 5]])
    assert shares == pytest.approx({5: 2 / 2.5})
    assert num_places == 2
    assert blend([[-1, -1]]) == ({}, 0)


def test_no_match_runs_over_a_border():
    history = index_of([[1, 2], [3, 4], [1], [2, 9]])
    assert find(GrowingText([1, 2]), [history]) == []  # neither 1 2 | 3 nor 1 | 2 9
    history.add([8, 1, 2, 5])
    (level,) = find(GrowingText([4, 1, 2]), [history])
    assert level.order == 2  # 4 | 8 1 2 is no longer match
    assert follow([level], 0) == [[5]]
    assert follow([level], 1) == [[-1]]  # and nothing is known beyond the text


def test_what_survives_matches_one_token_more():
    tokens = array("i", (-1, 5, 6, -1))
    matches = [Matches(MAX_ORDER, [(tokens, 1)]), Matches(3, [(tokens, 2)]), Matches(2, [(tokens, 1), (tokens, 2)])]
    found = survivors(matches, follow(matches, 0), 5)
    assert found == [Matches(MAX_ORDER, [(tokens, 1)]), Matches(3, [(tokens, 1)])]


def test_a_match_is_at_most_so_long_and_only_the_newest_places_count():
    (level,) = find(GrowingText(range(100, 150)), [index_of([[*range(100, 150), 7]])])
    assert level.order == MAX_ORDER
    history = index_of([[1, 2, number] for number in range(10, 10 + 3 * MAX_PLACES)])
    (level,) = find(GrowingText([1, 2]), [history])
    assert follow([level], 0) == [list(range(9 + 3 * MAX_PLACES, 9 + 2 * MAX_PLACES, -1))]
