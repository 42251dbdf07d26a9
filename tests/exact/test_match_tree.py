"""The match rule for token trees: cases by hand, and chains; `test_trees.py` has any tree."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.exact.rejection import match, match_tree


def test_by_hand():
    tokens, parents = [5, 6, 7, 8], [-1, -1, 1, 2]  # 5, and beside it the chain 6, 7, 8
    assert match_tree([9, 0, 0, 0, 0], tokens, parents) == ([], 9)
    assert match_tree([5, 3, 0, 0, 0], tokens, parents) == ([0], 3)
    assert match_tree([6, 0, 7, 4, 0], tokens, parents) == ([1, 2], 4)
    assert match_tree([6, 0, 7, 8, 2], tokens, parents) == ([1, 2, 3], 2)
    assert match_tree([1], [], []) == ([], 1)


def test_of_two_equal_siblings_the_first_is_taken_and_the_text_is_the_same():
    assert match_tree([5, 6, 6, 7], [5, 5, 6], [-1, -1, 1]) == ([0], 6)
    assert match_tree([5, 6, 6, 7], [5, 5, 6], [-1, -1, 0]) == ([0, 2], 7)


def test_parents_need_not_come_first():
    assert match_tree([5, 1, 6, 7], [7, 5, 6], [2, -1, 1]) == ([1, 2, 0], 1)


def test_tensors_are_taken_too():
    path, next_token = match_tree(torch.tensor([5, 6, 0]), torch.tensor([5, 6]), torch.tensor([-1, -1]))
    assert (path, next_token) == ([0], 6)


@given(st.lists(st.integers(0, 2), max_size=6), st.data())
def test_a_chain_is_a_tree(tokens, data):
    drawn = data.draw(st.lists(st.integers(0, 2), min_size=len(tokens) + 1, max_size=len(tokens) + 1))
    num_accepted, _ = match(drawn, tokens)
    path, next_token = match_tree(drawn, tokens, range(-1, len(tokens) - 1))
    assert (path, next_token) == (list(range(num_accepted)), drawn[num_accepted])
