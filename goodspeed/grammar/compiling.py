"""A constraint, compiled within bounds, and kept for those of its scope.

Compiling drops Python's lock, so that a thread of its own leaves an event loop alone. Knows nothing about sessions.
"""

from dataclasses import dataclass, field
from threading import Lock

from llguidance import LLMatcher, LLParserLimits

from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import GrammarError
from goodspeed.grammar.kept import ALONE, Kept, Key, Scope
from goodspeed.grammar.sources import to_grammar
from goodspeed.grammar.tokens import TokenTable
from goodspeed.grammar.wording import own_words
from goodspeed.wire.generation import Constraint

LIMITS = LLParserLimits(
    initial_lexer_fuel=200_000,  # about 30 ms of compiling
    step_lexer_fuel=50_000,  # about 4 ms of a mask
    step_max_items=10_000,
    max_items_in_row=2_000,
    max_lexer_states=5_000,  # of one session, 2 kB each
    max_grammar_size=50_000,
    precompute_large_lexemes=False,
    verbose_errors=False,  # else errors would have the whole grammar in them
)
"""What one grammar may cost, in llguidance's units."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A compiled constraint; `begin` gives what follows one text."""

    table: TokenTable
    _prototype: LLMatcher = field(repr=False)

    def begin(self) -> LLMatcher:
        """Returns a matcher at the start of the grammar, which shares nothing with others that is changed."""
        return self._prototype.deep_copy()


def compile_constraint(constraint: Constraint, table: TokenTable) -> Grammar:
    """Compiles a constraint; GrammarError, with the reason and what to do, where it is wrong or costs too much.

    A grammar of which no text can begin is refused too.
    """
    matcher = LLMatcher(table.tokenizer, to_grammar(constraint), log_level=0, limits=LIMITS)
    has_lines = constraint.kind == "grammar"  # of any other kind the library is given a grammar that was made of it
    _check(matcher, has_lines)
    trial = matcher.deep_copy()
    trial.compute_bitmask()
    _check(trial, has_lines)
    trial.try_consume_tokens(trial.compute_ff_tokens())
    trial.compute_bitmask()
    _check(trial, has_lines)
    return Grammar(table, matcher)


def _check(matcher: LLMatcher, has_lines: bool) -> None:
    if matcher.is_error():
        raise GrammarError(reason(matcher, has_lines=has_lines))


def reason(matcher: LLMatcher, *, has_lines: bool = False) -> str:
    """Returns why a matcher failed, on one line and not too long; `has_lines` as `own_words`."""
    return own_words(str(matcher.get_error()), has_lines=has_lines)


class Grammars:
    """Compiles each constraint once in its scope, also a wrong one, and keeps some (`kept.py`). For several threads.

    What a session holds is kept until it is released, so that no model's thread compiles it again. That is bounded by
    the number of sessions, whose matchers have the same grammars.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        """The vocabulary is read when it is needed first."""
        self._vocabulary = vocabulary
        self._table: TokenTable | None = None
        self._reading = Lock()
        self._lock = Lock()
        self._kept: Kept[Grammar | GrammarError] = Kept()

    @property
    def table(self) -> TokenTable:
        """The vocabulary's tokens; GrammarError where they cannot be read."""
        with self._reading:
            if self._table is None:
                self._table = TokenTable.of(self._vocabulary)
            return self._table

    def known(self, constraint: Constraint, scope: Scope = ALONE) -> bool:
        """Whether `get` answers at once."""
        with self._lock:
            return self._kept.get(_key(constraint, scope)) is not None

    def get(self, constraint: Constraint, scope: Scope = ALONE) -> Grammar:
        """Returns the constraint's grammar, compiled now where it is not known in this scope.

        GrammarError as `compile_constraint`.
        """
        key = _key(constraint, scope)
        with self._lock:
            found = self._kept.get(key)
        if found is None:
            found = self._compile(constraint)
            with self._lock:
                self._kept.put(key, found)
        return _grammar(found)

    def problem(self, constraint: Constraint, scope: Scope = ALONE) -> str | None:
        """Returns why a constraint cannot be served; None if it can be."""
        try:
            self.get(constraint, scope)
        except GrammarError as error:
            return str(error)
        return None

    def hold(self, session_id: bytes, constraint: Constraint, scope: Scope = ALONE) -> None:
        """Keeps the grammar for an open session until `release`. Called by whoever opens and closes sessions.

        GrammarError as `get`.
        """
        grammar = self.get(constraint, scope)
        with self._lock:
            self._kept.hold(session_id, _key(constraint, scope), grammar)

    def release(self, session_id: bytes, but: Constraint | None = None) -> None:
        """The session is over, or has only this constraint by now."""
        with self._lock:
            self._kept.release(session_id, None if but is None else (but.kind, but.source))

    def of(self, session_id: bytes, constraint: Constraint, scope: Scope | None = None) -> Grammar:
        """Returns what the session holds; else as `get`, or without a scope compiled for this caller alone.

        GrammarError as `get`.
        """
        with self._lock:
            found = self._kept.of(session_id, constraint.kind, constraint.source)
        if found is not None:
            return _grammar(found)
        return compile_constraint(constraint, self.table) if scope is None else self.get(constraint, scope)

    def _compile(self, constraint: Constraint) -> Grammar | GrammarError:
        try:
            return compile_constraint(constraint, self.table)
        except GrammarError as error:
            return error


def _grammar(found: Grammar | GrammarError) -> Grammar:
    if isinstance(found, GrammarError):
        raise GrammarError(str(found))
    return found


def _key(constraint: Constraint, scope: Scope) -> Key:
    """What decides the grammar, and who may find it; what is thought before it does not matter."""
    return Key(scope, constraint.kind, constraint.source)
