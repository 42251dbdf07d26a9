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
from tests.verify_node.model.desk import RealDesk, alone, make_target
from tests.verify_node.model.test_target import RULES, SAMPLINGS
from verify_node.scheduler.round import Round

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
    [outcome] = target.run(Round(1, (first,))).outcomes
    assert (outcome.tokens, outcome.num_accepted) == (right[:5], 4)
    assert target.engine.pool.length(session_id(1)) == len(PROMPT) + 4, "only the path is kept"
    tokens, parents = grown(right[5:8], rng, 3)
    second = entry(1, len(PROMPT) + 4, (right[4], *tokens), parents, text=(*PROMPT, *right[:5]), **ruled)
    [outcome] = target.run(Round(2, (second,))).outcomes
    assert outcome.tokens == right[5:9]


def test_where_nothing_of_a_tree_is_right_nothing_is_kept():
    right = alone(make_open(1, prompt=PROMPT, max_tokens=3))
    wrong = [(right[0] + each) % VOCAB for each in (1, 2)]
    target = make_target()
    [outcome] = target.run(Round(1, (entry(1, 0, (*PROMPT, *wrong), (-1, -1)),))).outcomes
    assert (outcome.tokens, outcome.num_accepted, outcome.path, outcome.agreement) == (right[:1], 0, (), 0.0)
    assert target.engine.pool.length(session_id(1)) == len(PROMPT)


def test_eq_3_and_a_recording_count_the_first_choices():
    right = alone(make_open(1, prompt=PROMPT, max_tokens=3))
    wrong = (right[0] + 1) % VOCAB
    [outcome] = (
        make_target(records=True)
        .run(Round(1, (entry(1, 0, (*PROMPT, wrong, right[0], right[1]), (-1, -1, 1)),)))
        .outcomes
    )
    assert (outcome.num_accepted, outcome.agreement, outcome.path) == (2, 0.0, (1, 2))
    assert outcome.decisions is not None
    assert outcome.decisions.agreed == (False,)


def test_logprobs_are_those_of_the_paths_tokens():
    right = alone(make_open(1, prompt=PROMPT, max_tokens=4))
    wrong = (right[0] + 1) % VOCAB
    tree = entry(1, 0, (*PROMPT, wrong, *right[:2]), (-1, -1, 1), num_logprobs=2)
    chain = make_entry(1, 0, (*PROMPT, *right[:2]), 2, num_logprobs=2)
    [branched], [straight] = (make_target().run(Round(1, (one,))).outcomes for one in (tree, chain))
    assert branched.tokens == straight.tokens
    for one, other in zip(branched.logprobs, straight.logprobs, strict=True):
        assert one.top_ids == other.top_ids
        assert one.top_logprobs == pytest.approx(other.top_logprobs, abs=1e-4)


def test_what_may_not_be_drawn_yet_is_masked_by_depth():
    """A stop id is banned up to a position of the text, wherever in the tree its row lies."""
    sampling = Sampling(temperature=0.0)
    [free] = alone(make_open(1, prompt=PROMPT, sampling=sampling, max_tokens=1))
    beside = [(free + each) % VOCAB for each in (1, 2, 3)]
    banned = entry(1, 0, (*PROMPT, *beside), (-1, -1, -1), sampling=sampling, stop_ids=(free,), min_tokens=1)
    [outcome] = make_target().run(Round(1, (banned,))).outcomes
    assert outcome.tokens[0] != free


@pytest.mark.parametrize("num_pages", [256, 20])
def test_every_text_is_the_targets_own_whatever_trees_are_drafted(num_pages):
    rng = random.Random(7)
    desk = RealDesk(make_target(num_pages=num_pages), budget=12, max_round_tokens=40, is_shared=False)
    desk.hello("a")
    opened = {
        session_id(number): make_open(
            number,
            prompt=tuple(rng.randrange(VOCAB) for _ in range(rng.choice([1, 5, 20]))),
            sampling=replace(rng.choice(SAMPLINGS), seed=number),
            max_tokens=rng.randint(10, 50),
            stop_ids=rng.choice([(), (7,)]),
            logit_rules=RULES[number % len(RULES)],
        )
        for number in range(6)
    }
    texts = {key: alone(message) for key, message in opened.items()}
    for message in opened.values():
        desk.up("a", message)
    for _ in range(400):
        planned = desk.core.plan(desk.now)
        if planned:
            desk.finish(planned)
        for session in [one for one in desk.core.sessions.values() if not one.finished]:
            done = len(session.tokens) - len(session.opened.prompt)
            ahead = texts[session.session_id][done : done + rng.randint(1, 5)]
            tokens, parents = grown(ahead, rng, 2) if ahead else ((1,), (-1,))
            claimed = probabilities.encode(rng.choice([[0.9] * len(tokens), [rng.random() for _ in tokens]]))
            draft = Draft(session.session_id, 1, len(session.tokens), tokens, claimed, parents=trees.pack(parents))
            assert desk.up("a", draft) == []
        if all(session.finished for session in desk.core.sessions.values()):
            break
    written = {key: tuple(session.tokens[len(session.opened.prompt) :]) for key, session in desk.core.sessions.items()}
    assert written == texts
    assert desk.core.counts.num_alternatives > 40
    assert desk.core.counts.num_alternatives_accepted > 10
