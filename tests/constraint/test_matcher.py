"""Masks allow what may follow an output and each drafted token: by hand, then as if each path were read alone."""

import random

import numpy as np
import pytest
from llguidance import LLParserLimits
from msgspec.structs import replace

from goodspeed.constraint import grammars
from goodspeed.constraint.masks import Asked, Batch
from goodspeed.wire.generation import Constraint
from tests.constraint.babbler import CONSTRAINTS, END, NUM_TOKENS, Babbler, Draft, decode, encode
from tests.constraint.ending import may_end

A, B, C, D = (encode(letter)[0] for letter in "abcd")
ABC = Constraint("regex", "a[bc]{2}")


def matcher(constraint=ABC, after=(), stop_ids=None):
    found = CONSTRAINTS.get(replace(constraint, after=tuple(after)))
    if stop_ids is not None:
        found.stop_at(stop_ids)
    return found


def texts(row):
    """The texts of the tokens that a row allows; ANY where it allows all, FREE where it allows all but END."""
    if (row == -1).all():
        return "ANY"
    tokens = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
    if len(tokens) == 32 * len(row) - 1 and END not in tokens:
        return "FREE"
    return {"END" if token == END else decode([token]) for token in tokens}


def test_a_chain_by_hand():
    rows = matcher().allowed([], [A, B, C, END, D])
    possible = [{"a", "ac", "ab", "abc"}, {"b", "c", "cb"}, {"b", "c"}, {"END"}]
    assert [texts(row) for row in rows] == [*possible, "ANY", "ANY"]


def test_a_tree_by_hand():
    #  a ─ b ─ b        a row after a wrong token is never drawn from
    #    └ c ─ wrong
    rows = matcher().allowed([], [A, B, C, B, D, B], [-1, 0, 0, 1, 2, 4])
    after_a, after_two = {"b", "c", "cb"}, {"b", "c"}
    assert [texts(row) for row in rows[1:]] == [after_a, after_two, after_two, {"END"}, "ANY", "ANY"]


def test_what_is_drafted_leaves_no_trace():
    one = matcher()
    for _ in range(3):
        assert texts(one.allowed([A], [B, D])[1]) == {"b", "c"}
    assert texts(one.allowed([A, C])[0]) == {"b", "c"}


def test_an_output_that_does_not_keep_the_form_may_not_go_on_and_says_why():
    one = matcher()
    rows = one.allowed([B], [A])
    assert [texts(row) for row in rows] == [set(), "ANY"]
    assert "violates the constraint" in one.problem
    assert texts(one.allowed([A, B])[0]) == {"b", "c"}  # another text may


def test_what_is_thought_is_free_also_where_it_ends_inside_a_draft():
    one = matcher(Constraint("regex", "ab"), after=[D, D])
    assert [texts(row) for row in one.allowed([A], [D, D, *encode("ab")])] == ["FREE", "FREE", {"ab"}, {"END"}]
    assert one.forced([A, D]) == ()
    assert one.forced([A, D, D]) == tuple(encode("ab"))
    assert [texts(row) for row in one.allowed([A], [END, D])] == ["FREE", "ANY", "ANY"]  # it may not end while thinking


def test_a_text_does_not_end_before_its_form_began_also_in_a_batch():
    one = matcher(Constraint("regex", "ab"), after=[D, D], stop_ids=[END, 77])
    [rows] = Batch().prepare([Asked(one, [A], [B, D])], 128)()
    assert [texts(row) for row in rows] == ["FREE"] * 3


def test_only_the_first_end_of_thinking_counts():
    one = matcher(Constraint("regex", "d*"), after=[D])
    assert "d" in texts(one.allowed([A, D, D, D])[0])
    assert texts(one.allowed([A, D, A])[0]) == set()


def test_the_end_is_allowed_exactly_where_the_form_may_end_and_the_text_stops_at_it():
    optional = Constraint("regex", "ab?")
    assert texts(matcher(optional).allowed([A])[0]) == {"b", "END"}
    assert texts(matcher(optional, stop_ids=[END, 77]).allowed([A])[0]) == {"b", "END"}
    assert texts(matcher(optional, stop_ids=[77]).allowed([A])[0]) == {"b"}
    assert may_end(matcher(optional), [A], END)
    assert not may_end(matcher(optional), [], END)


def test_ids_beyond_the_tokenizer_are_never_allowed():
    [row] = matcher(Constraint("regex", "(?s:.*)")).allowed([])
    assert 32 * len(row) >= NUM_TOKENS
    assert not np.unpackbits(row.view(np.uint8), bitorder="little")[NUM_TOKENS:].any()


@pytest.mark.parametrize("seed", range(6))
def test_each_row_is_as_if_its_path_were_read_alone(seed):
    rng = random.Random(seed)
    form = '{"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "integer"}}, "required": ["a"]}'
    constraint = Constraint("json_schema", form)
    text = Babbler(seed, constraint).write()
    kept = matcher(constraint)
    for _ in range(12):
        length = rng.randint(0, len(text))
        drafted = [rng.choice([*text, END]) if rng.random() < 0.4 else token for token in text[length : length + 5]]
        parents = [rng.randint(-1, node - 1) for node in range(len(drafted))] if rng.random() < 0.5 else None
        rows = kept.allowed(text[:length], drafted, parents)
        for node in range(len(drafted)):
            way = [node]
            while (before := way[0] - 1 if parents is None else parents[way[0]]) >= 0:
                way.insert(0, before)
            alone = matcher(constraint).allowed([], [*text[:length], *(drafted[each] for each in way)])[-1]
            assert (rows[node + 1] == alone).all()


def test_what_must_follow_is_accepted_with_certainty():
    named = '"properties": {"name": {"const": "x"}}, "required": ["name"], "additionalProperties": false'
    constraint = Constraint("json_schema", f'{{"type": "object", {named}}}')
    for seed in range(5):
        babbler, output = Babbler(seed, constraint, temperature=5.0), list[int]()
        while True:
            forced = babbler.forced
            outcome = babbler.round(output, Draft(forced))
            assert outcome.num_accepted == len(forced)
            output += [token for token in outcome.tokens if token != END]
            if END in outcome.tokens:
                break
        assert decode(output).startswith('{"name": "x"}')


@pytest.mark.thorough
@pytest.mark.parametrize("more", [{}, {"after": [D]}, {"after": [D, A]}, {"stop_ids": [77]}], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_one_that_has_read_other_texts_says_what_a_new_one_says(seed, more):
    """Outputs that part anywhere: before and after what is free ends, after the end, and where it is broken."""
    rng, batch = random.Random(seed), Batch()
    constraint = Constraint("regex", "(a|b)?c[ab]{0,3}")
    kept = matcher(constraint, **more)
    for _ in range(60):
        output = rng.choices([A, B, C, D, END], [4, 4, 4, 2, 1], k=rng.randint(0, 6))
        drafted = rng.choices([A, B, C, D, END], k=rng.randint(0, 3))
        parents = [rng.randint(-1, node - 1) for node in range(len(drafted))] if rng.random() < 0.3 else None
        expected = matcher(constraint, **more).allowed(output, drafted, parents)
        if rng.random() < 0.5:
            [rows] = batch.prepare([Asked(kept, output, drafted, parents)], 128)()
            is_reached = reached(expected, drafted, parents)
            assert (rows[is_reached] == expected[is_reached]).all(), (output, drafted, parents)
        else:
            assert (kept.allowed(output, drafted, parents) == expected).all(), (output, drafted, parents)
        assert kept.forced(output) == matcher(constraint, **more).forced(output)


COSTLY = Constraint("regex", "([ab]*a[ab]{7}c)+")  # each way to read a and b has a state of its own


def few_states(monkeypatch, number):
    monkeypatch.setattr(grammars, "LIMITS", LLParserLimits(max_lexer_states=number, verbose_errors=False))


def test_what_one_text_costs_ends_no_other_of_its_form(monkeypatch):
    few_states(monkeypatch, 150)
    first, second = matcher(COSTLY), matcher(COSTLY)
    expected = second.allowed([A, B])
    rng = random.Random(0)
    while not first.is_spent:  # until it has read too much
        first._follow(rng.choices([A, B], k=12))
        first._write(np.zeros(128, np.int32))
    assert (second.allowed([A, B]) == expected).all()
    assert (matcher(COSTLY).allowed([A, B]) == expected).all()


@pytest.mark.parametrize("parents", [None, [-1, -1, 0]])
def test_what_was_read_before_decides_nothing_when_it_becomes_too_much(monkeypatch, parents):
    """The library gives up at the base, or at a drafted token: a new matcher reads the text, and has room for it."""
    few_states(monkeypatch, 150)
    kept, num_anew, rng = matcher(COSTLY), 0, random.Random(1)
    for _ in range(60):
        output, drafted = rng.choices([A, B], k=9), rng.choices([A, B], k=3)
        begun = kept._begun
        assert (kept.allowed(output, drafted, parents) == matcher(COSTLY).allowed(output, drafted, parents)).all()
        num_anew += begun is not kept._begun
        assert not kept.problem
    assert num_anew > 5


def test_a_form_that_is_too_costly_for_any_matcher_is_tried_once_more_only(monkeypatch):
    few_states(monkeypatch, 40)
    one, begun, begin = matcher(COSTLY), list[int](), grammars.compiled_matcher

    def counting(constraint, table):
        begun.append(1)
        return begin(constraint, table)

    monkeypatch.setattr(grammars, "compiled_matcher", counting)
    rows = one.allowed(random.Random(2).choices([A, B], k=30), [A, B, A], [-1, -1, -1])
    assert (rows == 0).all()
    assert "too many states" in one.problem
    assert len(begun) == 1


@pytest.mark.parametrize("seed", range(4))
def test_many_chains_at_once_are_as_each_alone(seed):
    rng, batch = random.Random(seed), Batch()
    constraints = [ABC, Constraint("regex", "[ab]*"), Constraint("choice", '["abc", "b"]'), Constraint("json_object")]
    kept = [matcher(constraint) for constraint in constraints]
    kept += [matcher(ABC, after=[D]), matcher(ABC, stop_ids=[77])]
    for _ in range(6):
        asked = []
        for each in kept:
            output = rng.choice([[], [A], [A, B], [B], [D], [D, A]])
            drafted = [rng.choice([A, B, C, D, END]) for _ in range(rng.randint(0, 4))]
            parents = [rng.randint(-1, node - 1) for node in range(len(drafted))] if rng.random() < 0.3 else None
            asked.append(Asked(each, output, drafted, parents))
        for one, rows in zip(asked, batch.prepare(asked, 128)(), strict=True):
            own = one.matcher.allowed(one.output, one.drafted, one.parents)
            is_reached = reached(own, one.drafted, one.parents)
            assert (rows[is_reached] == own[is_reached]).all()


def reached(rows, drafted, parents):
    """The rows that can be drawn from: those after tokens that may be drawn, and do not end the text."""
    found = [True]
    for node, token in enumerate(drafted):
        before = node if parents is None else parents[node] + 1
        is_allowed = bool(rows[before][token // 32] >> token % 32 & 1)
        found.append(found[before] and is_allowed and token != END)
    return found
