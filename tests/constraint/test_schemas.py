"""Two hundred schemas: what random logits write in their masks parses and validates, drafted or not.

The schemas lie in `schemas/`, by kinds as in the JSON Schema test suite.
"""

import json
import random
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from goodspeed.wire.generation import Constraint
from tests.constraint.babbler import NUM_TOKENS, Babbler, Draft, decode

FILES = sorted((Path(__file__).parent / "schemas").glob("*.jsonl"))
SCHEMAS = [(path.stem, line) for path in FILES for line in path.read_text("utf-8").splitlines()]


def check(schema: str, text: str) -> None:
    """The text is JSON, and in the schema."""
    answer = json.loads(text)
    Draft202012Validator(json.loads(schema), format_checker=Draft202012Validator.FORMAT_CHECKER).validate(answer)


def chain(right: list[int], rng: random.Random, babbler: Babbler, output: list[int]) -> Draft:
    """Returns what must follow; or else what does, but for a token that is wrong here and there."""
    if babbler.forced:
        return Draft(babbler.forced[:6])
    tokens = right[len(output) : len(output) + rng.randint(0, 5)]
    return Draft([token if rng.random() < 0.85 else rng.randrange(NUM_TOKENS) for token in tokens])


def tree(right: list[int], rng: random.Random, babbler: Babbler, output: list[int]) -> Draft:
    """The text that follows, beside two wrong branches, the end of the text among them."""
    tokens = right[len(output) : len(output) + 3]
    wrong = [rng.randrange(NUM_TOKENS), 0]
    parents = [*range(-1, len(tokens) - 1), -1, max(0, len(tokens) - 1) if tokens else -1]
    return Draft([*tokens, *wrong], parents)


def test_there_are_two_hundred_of_many_kinds():
    assert (len(SCHEMAS), len(set(SCHEMAS)), len(FILES)) == (200, 200, 12)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [path.stem for path in FILES])
@pytest.mark.parametrize(("temperature", "drafter"), [(0.0, chain), (1.0, tree)])
def test_every_answer_validates_whatever_is_drafted(kind, temperature, drafter):
    for number, (_, schema) in enumerate(pair for pair in SCHEMAS if pair[0] == kind):
        constraint = Constraint("json_schema", schema)
        plain = Babbler(number, constraint, temperature)
        right = plain.write()
        check(schema, decode(right))
        drafted, rng = Babbler(number, constraint, temperature), random.Random(number)
        assert drafted.write(lambda output: drafter(right, rng, drafted, output)) == right  # noqa: B023
        assert drafted.num_rounds <= plain.num_rounds
