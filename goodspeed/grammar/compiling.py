"""A constraint, compiled within bounds, and held for each open session that has one.

Compiling drops Python's lock, so that a thread of its own leaves an event loop alone. Knows nothing about sessions.
"""

from dataclasses import dataclass, field
from threading import Lock
from typing import TypeAlias

from llguidance import LLMatcher, LLParserLimits

from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import GrammarError
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
    """A constraint that compiles; `begin` gives what follows one text.

    The library's copies of a matcher share its lexer, with all that it has read and with its error, so that one text's
    cost would end others. So each text has a matcher that was compiled for it.
    """

    table: TokenTable
    _constraint: Constraint
    _ready: list[LLMatcher] = field(default_factory=list, repr=False)

    def begin(self) -> LLMatcher:
        """Returns a matcher at the start that shares nothing with others: the first is ready, later ones are compiled.

        GrammarError as `compile_constraint`.
        """
        return self._ready.pop() if self._ready else _compile(self._constraint, self.table)


def compile_constraint(constraint: Constraint, table: TokenTable) -> Grammar:
    """Compiles a constraint; GrammarError, with the reason and what to do, where it is wrong or costs too much.

    A grammar of which no text can begin is refused too.
    """
    return Grammar(table, constraint, [_compile(constraint, table)])


def _compile(constraint: Constraint, table: TokenTable) -> LLMatcher:
    matcher = LLMatcher(table.tokenizer, to_grammar(constraint), log_level=0, limits=LIMITS)
    has_lines = constraint.kind == "grammar"  # of any other kind the library is given a grammar that was made of it
    _check(matcher, has_lines)
    trial = matcher.deep_copy()
    trial.compute_bitmask()
    _check(trial, has_lines)
    trial.try_consume_tokens(trial.compute_ff_tokens())
    trial.compute_bitmask()
    _check(trial, has_lines)
    return matcher


def _check(matcher: LLMatcher, has_lines: bool) -> None:
    if matcher.is_error():
        raise GrammarError(reason(matcher, has_lines=has_lines))


def reason(matcher: LLMatcher, *, has_lines: bool = False) -> str:
    """Returns why a matcher failed, on one line and not too long; `has_lines` as `own_words`."""
    return own_words(str(matcher.get_error()), has_lines=has_lines)


Compiled: TypeAlias = Grammar | GrammarError
"""What came of compiling a constraint."""


class Grammars:
    """Compiles constraints, and holds those of open sessions. For several threads.

    Nothing is shared between sessions: how long an answer takes tells nobody what others have sent. What a session
    holds was compiled before it was opened, on another thread (`compiled`, then `offer`), not by the model's thread.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        """The vocabulary is read when it is needed first."""
        self._vocabulary = vocabulary
        self._table: TokenTable | None = None
        self._reading = Lock()
        self._lock = Lock()
        self._newest: tuple[Constraint, Compiled] | None = None  # that no session holds
        self._held: dict[bytes, list[tuple[Constraint, Grammar]]] = {}  # by session

    @property
    def table(self) -> TokenTable:
        """The vocabulary's tokens; GrammarError where they cannot be read."""
        with self._reading:
            if self._table is None:
                self._table = TokenTable.of(self._vocabulary)
            return self._table

    def get(self, constraint: Constraint) -> Grammar:
        """Compiles a constraint now; GrammarError as `compile_constraint`."""
        return compile_constraint(constraint, self.table)

    def compiled(self, constraint: Constraint) -> Compiled:
        """Compiles a constraint now, and returns also why that cannot be."""
        try:
            return self.get(constraint)
        except GrammarError as error:
            return GrammarError(str(error))  # without what led to it, which may be large

    def offer(self, constraint: Constraint, compiled: Compiled) -> None:
        """Gives what was compiled for the session that is opened next, so that `problem` and `hold` need not do it."""
        with self._lock:
            self._newest = (constraint, compiled)

    def problem(self, session_id: bytes, constraint: Constraint) -> str | None:
        """Returns why a session cannot be opened with this constraint; None if it can be."""
        if self.holds(session_id, constraint):
            return None
        compiled = self._offered(constraint)
        return str(compiled) if isinstance(compiled, GrammarError) else None

    def hold(self, session_id: bytes, constraint: Constraint) -> None:
        """Keeps a session's grammar until `release`. Called by whoever opens and closes sessions.

        A session that is opened again has two at most: the one of the round in flight, and its newest. GrammarError as
        `compile_constraint`.
        """
        if self.holds(session_id, constraint):
            return
        compiled = self._offered(constraint)
        if isinstance(compiled, GrammarError):
            raise GrammarError(str(compiled))
        with self._lock:
            self._newest = None
            held = self._held.setdefault(session_id, [])
            held.append((constraint, compiled))
            if len(held) > 2:
                del held[1]

    def release(self, session_id: bytes, but: Constraint | None = None) -> None:
        """The session is over, or has only this constraint by now."""
        with self._lock:
            held = self._held.pop(session_id, [])
            if left := [each for each in held if each[0] == but]:
                self._held[session_id] = left

    def holds(self, session_id: bytes, constraint: Constraint) -> bool:
        """Whether the session holds this constraint's grammar."""
        with self._lock:
            return any(each == constraint for each, _ in self._held.get(session_id, ()))

    @property
    def holders(self) -> list[bytes]:
        """The sessions that hold anything."""
        with self._lock:
            return list(self._held)

    def of(self, session_id: bytes, constraint: Constraint) -> Grammar:
        """Returns what the session holds; where it holds nothing, the constraint is compiled now, as by `get`."""
        with self._lock:
            found = [grammar for each, grammar in self._held.get(session_id, ()) if each == constraint]
        return found[0] if found else self.get(constraint)

    def _offered(self, constraint: Constraint) -> Compiled:
        """Returns what was offered; where that was another constraint's, compiles it now."""
        with self._lock:
            newest = self._newest
        if newest is None or newest[0] != constraint:
            newest = (constraint, self.compiled(constraint))
            self.offer(*newest)
        return newest[1]
