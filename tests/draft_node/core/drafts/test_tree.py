"""Alternatives to the tokens of a chain: which go up, in which order, and which are not worth it."""

import pytest

from draft_node.core.drafts.tree import SECOND, Tree, second_probability
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.fields import MAX_DRAFT

CHAIN = Continuation((1, 2, 3), (0.5, 0.5, 0.9))


def test_alternatives_follow_the_chain():
    """So that whoever takes the first of them takes the chain."""
    tree = Tree.of(CHAIN, (11, 12, None), 0.0)
    assert tree is not None
    assert (tree.tokens, tree.parents) == ([1, 2, 3, 11, 12], [-1, 0, 1, -1, 0])
    assert tree.probabilities == pytest.approx([0.5, 0.5, 0.9, SECOND / 2, SECOND / 2])


def test_where_the_token_is_sure_or_the_verify_node_would_not_look_there_is_none():
    assert Tree.of(Continuation((1,), (0.99,)), (11,), 0.0) is None
    assert Tree.of(CHAIN, (None, None, None), 0.0) is None
    assert Tree.of(CHAIN, (), 0.0) is None, "its drafter knows none"
    least = second_probability(0.5)
    tree = Tree.of(CHAIN, (11, 12, 13), least)
    assert tree is not None
    assert tree.tokens == [1, 2, 3, 11], "the second one's path probability is half of it"


def test_a_tree_has_room_for_the_whole_chain_first():
    chain = Continuation(tuple(range(60)), (0.99,) + (1.0,) * 59)
    tree = Tree.of(Continuation(chain.tokens, (0.5, *chain.probabilities[1:])), tuple(range(100, 160)), 0.0)
    assert tree is not None
    assert len(tree.tokens) == 61
    doubtful = Tree.of(Continuation(tuple(range(60)), (0.97,) * 60), tuple(range(100, 160)), 0.0)
    assert doubtful is None, "none of them is likely enough"
    full = Tree.of(Continuation(tuple(range(62)), (0.9,) * 62), tuple(range(100, 162)), 0.0)
    assert full is not None
    assert (len(full.tokens), {*range(62)} <= {*full.tokens}) == (MAX_DRAFT, True)
