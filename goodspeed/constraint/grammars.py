"""Compiles a constraint to a grammar within llguidance's limits, and says what is wrong with it otherwise."""

import re

from llguidance import LLMatcher, LLParserLimits

from goodspeed.constraint.sources import to_grammar
from goodspeed.constraint.tokens import TokenTable
from goodspeed.errors import ConstraintError
from goodspeed.untrusted import sanitize
from goodspeed.wire.generation import Constraint

MAX_END = 140
"""Characters that a long message retains at each end: the beginning has the position, the end has the reason."""

LIMITS = LLParserLimits(
    initial_lexer_fuel=200_000,  # about 30 ms to compile
    step_lexer_fuel=50_000,  # about 4 ms per mask
    step_max_items=10_000,
    max_items_in_row=2_000,
    max_lexer_states=5_000,  # per session, 2 kB each
    max_grammar_size=50_000,
    precompute_large_lexemes=False,
    verbose_errors=False,  # else errors would quote the whole grammar
)
"""Cost limits of one grammar, in llguidance's units."""

NO_TEXT = "no text satisfies it; make its recursion end, or remove a contradictory part"

_PLACE = re.compile(r"^(?:at )?(\d+)\((\d+)\): ")
_EXCERPT = re.compile(r"\n\s*\d+ \| .*", re.DOTALL)
_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"Unsatisfiable schema: ", "no text satisfies it: "),
        (r"\s*while processing \S+", ""),
        (r"Unimplemented keys: ", "it has keywords that cannot be kept: "),
        (
            r"oneOf constraints are not supported\..*",
            'the members of "oneOf" may have values in common, so it cannot be kept; write "anyOf"',
        ),
        (
            r"circular references with sibling keys are not supported: .*",
            "a schema that refers to itself with other keywords beside the reference cannot be kept; leave these out",
        ),
        (
            r"lookarounds not supported yet; (?:Start|End)\w* in regex /(.*)/",
            r'the pattern "\1" has ^ or $ in its middle; write them at the ends',
        ),
    )
)
"""What llguidance says about schemas that only it understands, or with advice that cannot be followed here."""


def compiled_matcher(constraint: Constraint, table: TokenTable) -> LLMatcher:
    """Compiles a constraint; ConstraintError with llguidance's reason if it is invalid or allows no first token.

    llguidance's copies of a matcher share one lexer, including its state and its error, so one text's cost could fail
    other texts. So a matcher is compiled for each text.
    """
    matcher = LLMatcher(table.tokenizer, to_grammar(constraint, table.special_ids), log_level=0, limits=LIMITS)
    beginning = matcher if matcher.is_error() else matcher.deep_copy()
    if not beginning.is_error():
        beginning.compute_bitmask()
    if why := failure(beginning, constraint):
        raise ConstraintError(why)
    return matcher


def failure(matcher: LLMatcher, constraint: Constraint) -> str:
    """Returns a failed matcher's llguidance error on one line; "" if the matcher did not fail.

    Omits line and column unless the user wrote the grammar: otherwise they refer to generated source.
    """
    said = _EXCERPT.sub("", str(matcher.get_error()).replace("<non-verbose/>", "").strip())
    if constraint.kind == "grammar":
        said = _PLACE.sub(r"line \1, column \2: ", said)
    else:
        said = _PLACE.sub("", said).removeprefix("failed to compile JSON schema: ")
    said = " ".join(said.split())
    if "NoExtension" in said:
        said = NO_TEXT
    for pattern, words in _WORDS if constraint.kind != "regex" else ():
        said = pattern.sub(words, said)
    return sanitize(said if len(said) <= 2 * MAX_END else f"{said[:MAX_END]} ... {said[-MAX_END:]}")


def without_place(why: str) -> str:
    """Removes line and column from the error of a generated grammar, which the user never saw."""
    return re.sub(r"^line \d+, column \d+: (?:failed to compile JSON schema: )?", "", why)
