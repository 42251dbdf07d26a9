"""A draft model drafts beyond a text so far and so long, and keeps what the text's growth leaves valid."""

from draft_node.core.drafts.draft_tree import AT_ONCE, MAX_NODES, DraftTree
from draft_node.core.generation import Generation
from goodspeed.drafting.proposing import Proposed
from goodspeed.wire.messages import Sampling
from tests.draft_node.core.scripted import ID, PROMPT

REQUEST = Generation(ID, PROMPT, Sampling(), max_tokens=50, stop_ids=(0,))


def begun(request=REQUEST, num_parallel=1):
    tree = DraftTree(request, num_parallel)
    tree.begin(len(PROMPT))
    return tree


def test_a_model_that_drafts_in_parallel_is_asked_for_a_whole_pass():
    assert begun(num_parallel=AT_ONCE + 4).ask(PROMPT, 40, 0.0).length == AT_ONCE + 4
    assert begun(num_parallel=AT_ONCE + 4).ask(PROMPT, AT_ONCE + 1, 0.0).length == AT_ONCE + 1
    assert begun(num_parallel=AT_ONCE - 1).ask(PROMPT, 40, 0.0).length == AT_ONCE


def test_a_text_that_has_overtaken_all_that_was_asked_for_leaves_it():
    tree = begun()
    tree.ask(PROMPT, 2, 0.0)
    assert tree.follows((*PROMPT, 4, 5))
    assert not tree.follows((*PROMPT, 4, 5, 6)), "what is made now cannot reach beyond the text"


def test_a_tree_keeps_no_more_nodes_than_a_bound():
    """Branches are many: a tree that kept all of them would grow with the text."""
    tree = begun()
    tree.ask(PROMPT, 20, 0.0)
    many = MAX_NODES + 10
    tree.extend(Proposed(ID, 1, 0, tuple(range(4, 4 + many)), probabilities=(0.5,) * many, parents=(-1,) * many))
    assert len(tree.ask(PROMPT, 20, 0.0).tree.tokens) == MAX_NODES
