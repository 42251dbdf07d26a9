"""Rounds with token trees on a real, microscopic model: the text, the memory and the logprobs are as without them."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from goodspeed.exact import trees
from goodspeed.wire import probabilities
from goodspeed.wire.messages import Draft, Sampling
from tests.fakes import make_entry, make_open, session_id
from tests.micro import VOCAB
from tests.verify_node.model.desk import RULES, SAMPLINGS, RealDesk, alone, make_target, openings, other, outcomes_of

PROMPT = (1, 2, 3)


def entry(number, start, tokens, parents, **changes):
    return make_entry(number, start, tokens, len(parents), parents=parents, **changes)


def grown(text, rng, num_wrong):
    """A tree that has `text` as a path, and wrong tokens beside it anywhere; the text's nodes are not always first."""
    tokens: list[int] = []
    parents: list[int] = []
    at = trees.BASE
    for token in text:
        wrong = rng.randrange(num_wrong + 1)
        siblings = [rng.randrange(VOCAB) for _ in range(wrong)]
        siblings.insert(rng.randint(0, wrong), token)
        first = len(tokens)
        tokens += siblings
        parents += [at] * len(siblings)
        at = first + siblings.index(token)
    return tuple(tokens), tuple(parents)


@pytest.mark.parametrize("rules", RULES, ids=["plain", "penalties", "repetition", "bias"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "drawn", "truncated"])
def test_the_accepted_path_is_the_targets_text_and_so_is_what_follows_it(sampling, rules):
    rng = random.Random(5)
    target = make_target()
    sampling = replace(sampling, seed=1)
    right = alone(make_open(1, prompt=PROMPT, sampling=sampling, max_tokens=12, logit_rules=rules))
    tokens, parents = grown(right[:4], rng, 2)
    ruled: dict[str, Any] = {"sampling": sampling, "logit_rules": rules}
    first = entry(1, 0, (*PROMPT, *tokens), parents, text=PROMPT, **ruled)
    [outcome] = outcomes_of(first, target=target)
    assert (outcome.tokens, outcome.num_accepted) == (right[:5], 4)
    assert target.engine.pool.length(session_id(1)) == len(PROMPT) + 4, "only the path is kept"
    tokens, parents = grown(right[5:8], rng, 3)
    second = entry(1, len(PROMPT) + 4, (right[4], *tokens), parents, text=(*PROMPT, *right[:5]), **ruled)
    [outcome] = outcomes_of(second, target=target, number=2)
    assert outcome.tokens == right[5:9]


def test_where_nothing_of_a_tree_is_right_nothing_is_kept():
    [right] = alone(make_open(1, prompt=PROMPT, max_tokens=1))
    target = make_target()
    [outcome] = outcomes_of(entry(1, 0, (*PROMPT, other(right), other(right, 2)), (-1, -1)), target=target)
    assert (outcome.tokens, outcome.num_accepted, outcome.path, outcome.agreement) == ((right,), 0, (), 0.0)
    assert target.engine.pool.length(session_id(1)) == len(PROMPT)


def test_eq_3_and_a_recording_count_the_first_choices():
    right = alone(make_open(1, prompt=PROMPT, max_tokens=3))
    tree = entry(1, 0, (*PROMPT, other(right[0]), right[0], right[1]), (-1, -1, 1))
    [outcome] = outcomes_of(tree, target=make_target(records=True))
    assert (outcome.num_accepted, outcome.agreement, outcome.path) == (2, 0.0, (1, 2))
    assert outcome.decisions is not None
    assert outcome.decisions.agreed == (False,)


def test_logprobs_are_those_of_the_paths_tokens():
    right = alone(make_open(1, prompt=PROMPT, max_tokens=4))
    tree = entry(1, 0, (*PROMPT, other(right[0]), *right[:2]), (-1, -1, 1), num_logprobs=2)
    [branched] = outcomes_of(tree)
    [straight] = outcomes_of(make_entry(1, 0, (*PROMPT, *right[:2]), 2, num_logprobs=2))
    assert branched.tokens == straight.tokens
    for one, another in zip(branched.logprobs, straight.logprobs, strict=True):
        assert one.top_ids == another.top_ids
        assert one.top_logprobs == pytest.approx(another.top_logprobs, abs=1e-4)


def test_what_may_not_be_drawn_yet_is_masked_by_depth():
    """A stop id is banned up to a position of the text, wherever in the tree its row lies."""
    sampling = Sampling(temperature=0.0)
    [free] = alone(make_open(1, prompt=PROMPT, sampling=sampling, max_tokens=1))
    tokens = (*PROMPT, *(other(free, by) for by in (1, 2, 3)))
    [outcome] = outcomes_of(entry(1, 0, tokens, (-1, -1, -1), sampling=sampling, stop_ids=(free,), min_tokens=1))
    assert outcome.tokens[0] != free


@pytest.mark.parametrize("num_pages", [256, 20])
def test_every_text_is_the_targets_own_whatever_trees_are_drafted(num_pages):
    rng = random.Random(7)
    desk = RealDesk(make_target(num_pages=num_pages), budget=12, max_round_tokens=40, is_shared=False)
    desk.hello("a")
    opened = openings(rng, 6, [1, 5, 20], 10, 50)
    texts = {message.session_id: alone(message) for message in opened}
    for message in opened:
        desk.up("a", message)
    for _ in range(400):
        desk.round()
        for session in desk.going_on():
            done = len(session.tokens) - len(session.opened.prompt)
            ahead = texts[session.session_id][done : done + rng.randint(1, 5)]
            tokens, parents = grown(ahead, rng, 2) if ahead else ((1,), (-1,))
            claimed = probabilities.encode(rng.choice([[0.9] * len(tokens), [rng.random() for _ in tokens]]))
            draft = Draft(session.session_id, 1, len(session.tokens), tokens, claimed, parents=trees.pack(parents))
            assert desk.up("a", draft) == []
        if not desk.going_on():
            break
    assert desk.texts() == texts
    assert desk.core.counts.num_alternatives > 40
    assert desk.core.counts.num_alternatives_accepted > 10
