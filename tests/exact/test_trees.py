"""Token trees as plain integers, and the match rule for them: small ones by hand, then any shape."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.exact import trees
from goodspeed.exact.rejection import match, match_tree

TOKENS, PARENTS = [5, 6, 7, 8, 9], [-1, -1, 0, 2, 0]  # 5 and then 7, 8 or else 9; and 6 beside it


def shapes(max_size: int = 8) -> st.SearchStrategy[list[int]]:
    numbers = st.lists(st.integers(0, 10**6), max_size=max_size)
    return numbers.map(lambda raw: [each % (node + 1) - 1 for node, each in enumerate(raw)])


def test_by_hand():
    assert trees.depths(PARENTS) == [1, 1, 2, 3, 2]
    assert trees.first_choices(PARENTS) == [0, 2, 3]
    assert trees.below(PARENTS, 0) == ([2, 3, 4], (-1, 0, -1))
    assert trees.below(PARENTS, trees.BASE) == ([0, 1, 2, 3, 4], tuple(PARENTS))
    assert trees.distinct(TOKENS, PARENTS) == ([0, 1, 2, 3, 4], tuple(PARENTS))
    assert trees.distinct([5, 5, 7, 8, 7, 9], [-1, -1, 0, 1, 0, 4]) == ([0, 2], (-1, 0)), "the rest repeats or follows"
    assert trees.pick(PARENTS, [0, 1, 4]) == (-1, -1, 0)


def test_a_text_is_followed_as_far_as_the_tree_has_it():
    assert trees.follow(TOKENS, PARENTS, []) == trees.BASE
    assert trees.follow(TOKENS, PARENTS, [5, 7]) == 2
    assert trees.follow(TOKENS, PARENTS, [5, 9]) == 4
    assert trees.follow(TOKENS, PARENTS, [6, 7]) is None
    assert trees.follow([5, 5, 6], [-1, -1, 1], [5]) == 0, "of equal siblings the first, as the match rule has it"


@given(shapes())
def test_first_choices_are_a_path_and_a_chain_is_its_own(parents):
    chain = trees.first_choices(parents)
    assert [parents[node] for node in chain] == [trees.BASE, *chain][: len(chain)]
    assert trees.is_chain(tuple(parents)) == (chain == list(range(len(parents))))


@given(shapes(), st.data())
def test_what_is_below_a_node_keeps_its_shape(parents, data):
    at = data.draw(st.integers(-1, len(parents) - 1))
    nodes, picked = trees.below(parents, at)
    depths = trees.depths(parents)
    above = depths[at] if at != trees.BASE else 0
    assert trees.depths(picked) == [depths[node] - above for node in nodes]


@given(shapes(), st.data())
def test_what_the_match_rule_accepts_is_where_its_text_leads(parents, data):
    token = st.integers(0, 2)
    tokens = data.draw(st.lists(token, min_size=len(parents), max_size=len(parents)))
    drawn = data.draw(st.lists(token, min_size=len(parents) + 1, max_size=len(parents) + 1))
    path, _ = match_tree(drawn, tokens, parents)
    assert path == trees.accepted(drawn, tokens, parents)
    assert trees.follow(tokens, parents, [tokens[node] for node in path]) == (path[-1] if path else trees.BASE)


@given(shapes(), st.data())
def test_without_repeats_a_tree_accepts_the_same_texts(parents, data):
    token = st.integers(0, 1)
    tokens = data.draw(st.lists(token, min_size=len(parents), max_size=len(parents)))
    nodes, kept = trees.distinct(tokens, parents)
    texts = [tokens[node] for node in nodes]
    assert len({*zip(kept, texts, strict=True)}) == len(nodes)
    text = data.draw(st.lists(token, max_size=4))
    at, before = trees.follow(texts, kept, text), trees.follow(tokens, parents, text)
    assert before == (at if at in (None, trees.BASE) else nodes[at])


@given(shapes(max_size=64))
def test_parents_come_back_from_bytes(parents):
    assert list(trees.unpack(trees.pack(parents))) == parents


def test_the_match_rule_by_hand():
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
