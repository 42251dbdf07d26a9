"""Rules change logits: by hand, then as plain Python does for any text, whatever the batch."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.exact import trees
from goodspeed.exact.logits import masks
from goodspeed.exact.logits.rules import TextRows, _Added, process
from goodspeed.exact.logits.token_counts import TextCounts
from goodspeed.wire.generation import LogitRules, TokenBias

INF = math.inf


def one(values: list[float], prompt: Sequence[int] = (), output: Sequence[int] = (), **fields: object) -> list[float]:
    """Returns what becomes of a single row."""
    text = TextRows(counts=TextCounts.of(prompt, output), **fields)  # type: ignore[arg-type]
    return process(torch.tensor([values], dtype=torch.float64), [text])[0].tolist()


def bits(*rows: set[int], num_words: int = 1) -> masks.Words:
    words = np.zeros((len(rows), num_words), np.uint32)
    for row, tokens in enumerate(rows):
        for token in tokens:
            words[row, token // 32] |= np.uint32(1 << token % 32)
    return words.view(np.int32)


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_repetition_looks_at_the_prompt_too_and_always_makes_less_likely():
    assert one([1, -1, 0, 3], rules=LogitRules(repetition_penalty=2.0), prompt=[0, 1], output=[2]) == [0.5, -2, 0, 3]


def test_a_bias_is_added_before_penalties():
    rules = LogitRules(repetition_penalty=2.0, logit_bias=(TokenBias(0, -3.0), TokenBias(2, 1.5)))
    assert one([1, 1, 1], rules=rules, output=[0]) == [-4, 1, 2.5]


def test_min_p_is_taken_after_temperature():
    """At temperature 2 a tenth of the largest probability is ln(10) * 2 below the largest logit."""
    rules = LogitRules(min_p=0.1)
    assert one([5, 5 - 2.2, 5 - 2.4], rules=rules, temperature=1.0) == [5, 2.8, -INF]
    assert one([5, 5 - 4.5, 5 - 4.7], rules=rules, temperature=2.0) == [5, 0.5, -INF]
    assert one([5, 4, -90], rules=rules, temperature=0.0) == [5, 4, -90], "greedy anyway"
    assert one([5, 5, 4.9], rules=LogitRules(min_p=1.0)) == [5, 5, -INF]


def test_min_p_is_of_what_may_be_drawn():
    """Neither a banned token nor the model's padding is the likeliest."""
    assert one([9, 5, 4.9], rules=LogitRules(min_p=1.0), banned=[(0,)]) == [-INF, 5, -INF]
    text = TextRows(rules=LogitRules(min_p=1.0))
    assert process(torch.tensor([[5.0, 4.0, 9.0]]), [text], num_tokens=2).tolist() == [[5, -INF]]


def test_a_device_expands_bits_as_numpy_does():
    octets = np.random.default_rng(0).integers(0, 256, (3, 8), np.uint8)
    some = torch.zeros(3, 64)
    by_numpy, by_torch = masks._expanded_by_numpy(octets, some), masks._expanded_by_torch(octets, some)
    assert torch.equal(by_numpy, by_torch)
    assert (by_torch == 0).tolist() == np.unpackbits(octets, axis=1, bitorder="little").astype(bool).tolist()


def test_tokens_beyond_the_words_are_not_allowed_and_no_words_limit_nothing():
    changed = process(torch.zeros(2, 40), [TextRows(), TextRows(allowed=bits({0, 1}))])
    assert changed[0].tolist() == [0.0] * 40, "a row without a constraint"
    assert changed[1].tolist() == [0.0] * 2 + [-INF] * 38


def test_rows_without_rules_cost_nothing():
    logits = torch.randn(3, 5)
    assert process(logits, [TextRows([(), ()]), TextRows(banned=[()])]) is logits


def test_the_models_logits_stay_as_they_are():
    logits = torch.randn(2, 5)
    before = logits.clone()
    rules, counts = LogitRules(1.0, 1.0, 2.0, 0.5), TextCounts.of((), [2])
    process(logits, [TextRows([(), (1,)], rules, banned=[(1,), ()], counts=counts)])
    assert torch.equal(logits, before), "logprobs are told of these"


def test_half_precision_is_widened_before_anything_is_added():
    logits = torch.tensor([[100.0, 1.0]]).bfloat16()
    text = TextRows(rules=LogitRules(presence_penalty=0.01), counts=TextCounts.of((), [0]))
    changed = process(logits, [text])
    assert changed.dtype == torch.float32
    assert changed[0, 0].item() == pytest.approx(99.99)


# -- any text, as plain Python has it ----------------------------------------------------------------------------------

VOCAB = 40


class Text(NamedTuple):
    """A text, and the rows after it."""

    prompt: list[int]
    output: list[int]
    rows: TextRows


def expected(row: list[float], whole: Text, at: int, allowed: set[int] | None) -> list[float]:
    """One row, one token at a time."""
    text = whole.rows
    found, rules = list(row), text.rules
    output = [*whole.output, *text.paths[at]]
    if rules is not None:
        for token in range(len(found)):
            found[token] += sum(each.bias for each in rules.logit_bias if each.token == token)
            if token in whole.prompt or token in output:
                factor = rules.repetition_penalty
                found[token] = found[token] / factor if found[token] > 0 else found[token] * factor
            found[token] -= rules.frequency_penalty * output.count(token)
            found[token] -= rules.presence_penalty * (token in output)
    may = set(range(len(found))) if allowed is None else allowed
    banned = set(text.banned[at]) if text.banned is not None else set()
    may = may - banned or (may if allowed is not None else set())
    found = [value if token in may else -INF for token, value in enumerate(found)]
    if rules is not None and rules.min_p > 0 and text.temperature > 0:
        least = max(found) + text.temperature * math.log(rules.min_p)
        found = [value if value >= least else -INF for value in found]
    return found


tokens = st.lists(st.integers(0, VOCAB + 2), max_size=12)
numbers = st.integers(-8, 8).map(lambda number: number / 4)
biases = st.lists(st.builds(TokenBias, st.integers(0, VOCAB + 2), numbers), max_size=4).map(tuple)
factors, shares = st.sampled_from([0.5, 1.0, 1.25, 4.0]), st.sampled_from([0.0, 0.1, 1.0])
rules = st.none() | st.builds(LogitRules, numbers, numbers, factors, shares, biases)


@st.composite
def any_texts(draw: st.DrawFn) -> Text:
    drafted = draw(st.lists(st.integers(0, VOCAB - 1), max_size=5))
    parents = [draw(st.integers(-1, node - 1)) for node in range(len(drafted))]
    paths = [(), *trees.paths(drafted, parents if draw(st.booleans()) else None)]
    each = st.lists(st.integers(0, VOCAB + 2), max_size=3)
    banned = draw(st.none() | st.lists(each, min_size=len(paths), max_size=len(paths)))
    temperature = draw(st.sampled_from([0.0, 0.5, 1.0]))
    prompt, output = draw(tokens), draw(tokens)
    return Text(prompt, output, TextRows(paths, draw(rules), temperature, banned, TextCounts.of(prompt, output)))


@given(
    st.lists(any_texts(), min_size=1, max_size=4),
    st.lists(st.none() | st.lists(st.sets(st.integers(0, VOCAB - 1)), min_size=6, max_size=6), min_size=4, max_size=4),
    st.integers(0, 1000),
)
def test_every_row_is_what_plain_python_makes_of_it(texts, may_draw, seed):
    sizes = [len(text.rows.paths) for text in texts]
    logits = torch.randn(sum(sizes), VOCAB, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
    may_draw = [None if sets is None else sets[:size] for sets, size in zip(may_draw, sizes, strict=False)]
    allowed = [None if rows is None else bits(*rows, num_words=2) for rows in may_draw]
    changed = process(logits, [replace(text.rows, allowed=words) for text, words in zip(texts, allowed, strict=True)])
    row = 0
    for text, sets in zip(texts, may_draw, strict=True):
        for at in range(len(text.rows.paths)):
            may = None if sets is None else sets[at]
            assert changed[row].tolist() == pytest.approx(expected(logits[row].tolist(), text, at, may)), (text, at)
            row += 1


@given(st.lists(any_texts(), min_size=2, max_size=4), st.integers(0, 1000))
def test_a_rows_result_does_not_depend_on_its_neighbours_to_the_last_bit(texts, seed):
    num_rows = sum(len(text.rows.paths) for text in texts)
    logits = torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed))
    together = process(logits, [text.rows for text in texts])
    row = 0
    for prompt, before, rows in texts:
        for at, path in enumerate(rows.paths):
            banned = None if rows.banned is None else [rows.banned[at]]
            alone = replace(rows, paths=[()], banned=banned, counts=TextCounts.of(prompt, [*before, *path]))
            assert torch.equal(process(logits[row : row + 1], [alone]), together[row : row + 1])
            row += 1


def test_rules_that_do_not_read_the_text_need_no_counts():
    rules = LogitRules(min_p=1.0, logit_bias=(TokenBias(1, 2.0),))
    assert not rules.reads_text
    assert one([1, 0, 1], [0], [1], rules=rules) == [-INF, 2, -INF]
    assert process(torch.tensor([[1.0, 0.0, 1.0]]), [TextRows(rules=rules)]).tolist() == [[-INF, 2, -INF]]


@given(any_texts(), st.integers(0, 1000))
def test_kept_counts_do_what_the_text_does(text, seed):
    rows = text.rows
    logits = torch.randn(len(rows.paths), VOCAB, generator=torch.Generator().manual_seed(seed))
    counts = TextCounts.of(text.prompt, [*text.output, 1, 2, 3])
    counts.go_to((*text.prompt, *text.output))
    assert torch.equal(process(logits, [replace(rows, counts=counts)]), process(logits, [rows]))


def test_a_long_text_costs_no_memory_for_each_row(monkeypatch):
    """Tensors that cross to the device have the size of the text, or of the drafted tokens."""
    sizes, to = list[int](), _Added.to

    def told(added: _Added, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append(len(added.index))
        return to(added, logits)

    monkeypatch.setattr(_Added, "to", told)
    drafted = tuple(range(64))
    paths = [drafted[:length] for length in range(65)]
    counts = TextCounts.of(range(4000), ())
    process(torch.zeros(65, 5000), [TextRows(paths, LogitRules(repetition_penalty=2.0), counts=counts)])
    assert sizes == [64 * 65 // 2, 4000]
