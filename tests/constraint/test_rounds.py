"""Constraints in rounds: with stop ids, min_tokens and bans, under both rules, and where nothing may follow."""

import json
from math import isfinite

import pytest
from msgspec.structs import replace

from goodspeed.errors import NOT_NUMBERS
from goodspeed.exact.proposal_bytes import certain
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Sampling, Verdict
from tests.constraint.babbler import CONSTRAINTS, END, NUM_TOKENS, Babbler, Draft, decode, encode
from tests.fakes import Desk, session_id

FIXED = Constraint("choice", '["abc"]')
DEAD_END = Constraint("grammar", 'start: "a" | "b" X\nX: /[a-z]+/ & /[0-9]+/\n')
LIST = Constraint("json_schema", '{"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}}')
A, B = (encode(letter)[0] for letter in "ab")


def test_where_the_form_is_complete_the_end_is_forced():
    babbler = Babbler(1, FIXED)
    output = babbler.write()
    assert decode(output) == "abc"
    assert babbler.round(output).tokens == (END,)


def test_min_tokens_holds_while_the_form_leaves_a_choice_and_no_longer():
    assert len(Babbler(2, LIST).write()) < 12
    long = Babbler(2, Constraint("regex", "a*"), min_tokens=29).write()
    assert len(long) >= 29
    assert decode(Babbler(2, FIXED, min_tokens=29).write()) == "abc"  # the constraint wins


def test_a_stop_id_that_is_text_ends_it_where_it_comes():
    constraint = Constraint("regex", "[ab]{40}")
    babbler = Babbler(3, constraint, stop_ids=(END, A))
    tokens = babbler.write()
    while A not in tokens:
        babbler = Babbler(babbler.sampling.seed + 1, constraint, stop_ids=(END, A))
        tokens = babbler.write()
    assert babbler.round(tokens[: tokens.index(A) + 1]).forced == ()


def test_a_text_that_does_not_keep_its_form_fails_by_name_and_the_next_goes_on():
    babbler = Babbler(4, FIXED)
    outcome = babbler.round([B, B])
    assert (outcome.tokens, "violates the constraint" in outcome.failed, outcome.breaks_constraint) == ((), True, True)
    assert not babbler.round([]).failed


def test_logits_that_are_not_numbers_are_told_as_such_whatever_the_form_says(monkeypatch):
    babbler = Babbler(4, FIXED)
    monkeypatch.setattr(babbler, "logits", lambda output: Babbler.logits(babbler, output) * float("nan"))
    assert babbler.round([B, B]).failed == NOT_NUMBERS


@pytest.mark.parametrize("right", [True, False])
def test_the_ratio_rule_draws_within_the_form(right):
    for seed in range(8):
        babbler, output = Babbler(seed, LIST), list[int]()
        while not output or output[-1] != END:
            drafted = list(CONSTRAINTS.get(LIST).forced(output)) if right else [B]
            babbler.more = {"proposal": certain(drafted)}
            outcome = babbler.round(output, Draft(drafted), "ratio")
            assert outcome.failed == ""
            assert outcome.num_accepted == (len(drafted) if right else 0)
            assert outcome.forced == ()  # no tokens are drafted here for this rule
            output += outcome.tokens
        assert all(0 <= each <= 9 for each in json.loads(decode(output[:-1])))


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(), Sampling(top_k=5), Sampling(top_p=0.9)])
def test_what_is_drafted_into_a_dead_end_is_rejected_and_no_more(sampling):
    """A "b" is allowed, and nothing after it: rows after it are hidden whole, and are reached by no draw."""
    for seed in range(4):
        babbler = Babbler(seed, DEAD_END, proposal=certain([B, A]))
        babbler.sampling = replace(sampling, seed=seed)
        outcome = babbler.round([], Draft([B, A]), "ratio")
        if outcome.failed:  # the target went there itself
            assert outcome.agreement == 0.0
            continue
        assert outcome.tokens == (A,)
        assert 0.0 <= outcome.agreement <= 1.0
        assert all(map(isfinite, outcome.evidence))


def test_the_core_takes_what_came_of_a_dead_end():
    """The target's logits for such a draft have no NaN, which would end the verify node for everybody."""
    desk = Desk(vocab_size=NUM_TOKENS)
    desk.hello()
    desk.open(verification="ratio", max_tokens=50)
    desk.round()
    for seed in range(4):
        babbler = Babbler(seed, DEAD_END, proposal=certain([B, A]))
        outcome = babbler.round([], Draft([B, A]), "ratio")
        if outcome.failed:
            continue
        desk.draft(tokens=(B, A), proposal=certain([B, A]))
        planned = desk.plan()
        assert [entry.num_drafted for entry in planned.entries] == [2]
        desk.target.run(planned)  # feeds the memory
        [sent] = desk.core.rounds.finish([replace(outcome, session_id=session_id(1))], 0.01, desk.now)
        assert isinstance(sent.message, Verdict)
        assert sent.message.tokens == (A,)
    assert 0.0 <= desk.session().acceptance.value < 1.0
