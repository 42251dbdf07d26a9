"""Drafted trees when a round is packed: what is left of them, which nodes are taken, and what is learned."""

import pytest

from goodspeed.exact import trees
from goodspeed.fair.round_time import Linear
from goodspeed.wire import probabilities
from goodspeed.wire.messages import Draft
from tests.verify_node.scheduler.drafting import DEAR, NOW, make_choice, make_session, owe
from verify_node.scheduler.choose import of_draft
from verify_node.scheduler.commit import Moved
from verify_node.scheduler.round import Entry, Outcome
from verify_node.session.draft_tokens import DraftTokens

CLAIMED = (0.6, 0.3, 0.9, 0.8, 0.05)
TOKENS, PARENTS = (5, 6, 7, 8, 9), (-1, -1, 0, 2, 0)


def growing(number=1, claimed=CLAIMED, tokens=TOKENS, parents=PARENTS, **changes):
    """A session that has a tree drafted on its text."""
    session = make_session(number, **changes)
    codes, packed = probabilities.encode(claimed), trees.pack(parents)
    session.take_draft(Draft(session.session_id, 1, len(session.tokens), tokens, codes, parents=packed), NOW)
    return session


def chosen_of(session, **options):
    """Its nodes that a round takes."""
    return make_choice(**options).choose([session], 1, NOW)[session.session_id]


def test_the_rest_of_a_tree_follows_the_text():
    session = growing()
    assert of_draft(session).parents == PARENTS
    session.commit((5,))
    rest = of_draft(session)
    assert (rest.tokens, rest.parents) == ((7, 8, 9), (-1, 0, -1))
    assert list(rest.codes) == list(probabilities.encode((0.9, 0.8, 0.05)))
    session.commit((7,))
    assert (of_draft(session).tokens, of_draft(session).parents) == ((8,), None), "a chain is left"
    session.commit((8,))
    assert session.drafts.newest is None, "its draft is empty"


@pytest.mark.parametrize("text", [(4,), (6,), (5, 8)], ids=["no child", "a leaf", "no grandchild"])
def test_a_tree_is_forgotten_where_the_text_leaves_or_ends_it(text):
    session = growing()
    session.commit(text)
    assert session.drafts.newest is None


def test_the_likeliest_nodes_are_taken_with_their_parents_and_no_more_than_the_text_may_grow():
    chosen = chosen_of(growing(), budget=3)
    assert (chosen.tokens, chosen.parents) == ((5, 7, 8), None), "0.6, 0.54, 0.43 before 0.3"
    chosen = chosen_of(growing(), budget=4)
    assert (chosen.tokens, chosen.parents) == ((5, 6, 7, 8), (-1, -1, 0, 2))
    assert chosen_of(growing(max_tokens=4)).tokens == (5, 7, 8), "the likeliest three, though all would pay"


def test_what_is_owed_counts_alternatives_which_are_never_likelier_than_the_first_choice():
    session = owe(growing(claimed=(0.4, 0.4, 0.1, 0.8, 0.05)), 1.7)
    assert chosen_of(session, cost=DEAR).tokens == (5, 6, 7), "the first choices bring less than what is owed"
    session = growing(claimed=(0.2, 1.0, 0.9, 0.9, 1.0))
    assert chosen_of(session, budget=1).tokens == (5,), "a claim of 1.0 for the other is at most the first choice's"


def test_copies_of_a_token_take_no_room() -> None:
    """After one token one other is right: sixty claims of a half for it bring no more than one token."""
    copies = growing(1, claimed=(0.5,) * 60, tokens=(5,) * 60, parents=(-1,) * 60)
    others = growing(2, claimed=(0.5,) * 20, tokens=tuple(range(20)), parents=(-1,) * 20)
    honest = growing(3, claimed=(0.75,) * 8, tokens=tuple(range(8)), parents=tuple(range(-1, 7)))
    chosen = make_choice(budget=12, cost=Linear(fixed_s=0.01, token_s=1e-5)).choose([copies, others, honest], 1, NOW)
    assert [len(chosen[one.session_id].tokens) for one in (copies, others, honest)] == [1, 2, 8]


def moved(session, path, taken):
    tokens = tuple(TOKENS[node] for node in path)
    outcome = Outcome(session.session_id, (*tokens, 99), len(path), 1.0, path=tuple(path))
    drafted = DraftTokens(TOKENS, bytes(range(5)), parents=PARENTS)
    entry = Entry(session.opened, 0, (*session.tokens, *TOKENS), drafted)
    return Moved(session, entry, outcome, len(session.tokens), taken)


def test_what_was_drawn_after_the_base_and_each_accepted_node_is_learned_from_up_to_the_texts_end():
    move = moved(growing(), (0, 4), (5, 9, 99))
    first, other = "model", "alternative"
    assert move.claims == [(first, b"\x00", 1), (other, b"\x01", 0), (first, b"\x02", 0), (other, b"\x04", 1)]
    assert move.num_alternatives == (2, 1)
    assert (move.num_observed, move.num_first_choices) == (3, (1, 3)), "the first choices alone"
    assert moved(growing(), (1,), (6, 99)).num_first_choices[0] == 0
    move = moved(growing(), (0, 2, 3), (5,))
    assert [codes for _, codes, _ in move.claims] == [b"\x00", b"\x01", b"\x02", b"\x04"]
