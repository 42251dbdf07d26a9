"""A token tree: what the text does to it, which nodes go up, and which leaves are drafted behind."""

from goodspeed.drafting.tree import Nodes, Tree

# 1 and 2, or 3 instead of 1; behind 3 come 4, or 5
NODES = Nodes((1, 3, 2, 4, 5), (0.6, 0.3, 0.5, 0.8, 0.1), (-1, -1, 0, 1, 1))


def test_it_follows_a_text_along_any_way():
    assert NODES.after(()) == NODES
    assert NODES.after((1,)) == Nodes((2,), (0.5,), (-1,))
    assert NODES.after((3,)) == Nodes((4, 5), (0.8, 0.1), (-1, -1))
    assert NODES.after((3, 5)) == Nodes()
    assert NODES.after((2,)) is None
    assert NODES.after((1, 2, 6)) is None


def test_first_choices_go_up_first_and_then_the_likeliest():
    assert NODES.likeliest(9).tokens == (1, 2, 3, 4, 5)
    assert NODES.likeliest(9).parents == (-1, 0, -1, 2, 2)
    assert NODES.likeliest(3).tokens == (1, 2, 3)
    assert NODES.likeliest(4).probabilities == (0.6, 0.5, 0.3, 0.8)
    assert NODES.likeliest(9, stop_ids=(4, 5)).tokens == (1, 2, 3)
    assert NODES.likeliest(9, stop_ids=(3,)).tokens == (1, 2), "and what follows the end"


def test_a_tree_includes_another_by_its_paths_in_any_order():
    assert NODES.includes(NODES.likeliest(9))
    assert NODES.includes(Nodes((3, 4), (1.0, 1.0), (-1, 0)))
    assert not NODES.includes(Nodes((4,), (1.0,), (-1,)))
    assert NODES.includes(Nodes())


def test_the_likeliest_leaves_are_drafted_behind():
    tree = Tree.of(NODES)
    assert tree.leaves(3, 0.0, 9, ()) == [2, 3, 4]
    assert tree.leaves(1, 0.0, 9, ()) == [2]
    assert tree.leaves(3, 0.1, 9, ()) == [2, 3], "too unlikely"
    assert tree.leaves(3, 0.0, 9, (2,)) == [3, 4], "nothing follows the end"
    assert tree.leaves(3, 0.0, 2, ()) == [], "as deep as permitted"
    assert tree.leaves(1, 0.31, 9, ()) == []
    assert (Tree().leaves(3, 0.0, 9, ()), Tree().leaves(3, 0.0, 0, ())) == ([-1], [])
    closed = Tree()
    closed.close(-1)
    assert closed.leaves(3, 0.0, 9, ()) == [], "nothing can follow the base"
    tree.add(6, 0.9, 2)
    assert tree.leaves(1, 0.0, 9, ()) == [5]
    tree.close(5)
    assert tree.leaves(1, 0.0, 9, ()) == [3]
