"""A constraint, compiled within bounds, and the newest ones kept.

Compiling drops Python's lock, so that a thread of its own leaves an event loop alone. Knows nothing about sessions.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

from llguidance import LLMatcher, LLParserLimits

from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import GrammarError
from goodspeed.grammar.sources import to_grammar
from goodspeed.grammar.tokens import TokenTable
from goodspeed.wire.generation import Constraint

LIMITS = LLParserLimits(
    initial_lexer_fuel=200_000,  # about 30 ms of compiling
    step_lexer_fuel=50_000,  # about 4 ms of a mask
    step_max_items=10_000,
    max_items_in_row=2_000,
    max_lexer_states=20_000,  # of one session, 2 kB each
    max_grammar_size=50_000,
    precompute_large_lexemes=False,
    verbose_errors=False,  # else errors would have the whole grammar in them
)
"""What one grammar may cost, in llguidance's units."""

MAX_GRAMMARS = 64
"""Compiled grammars that are kept, with at most MAX_CHARS of source together."""

MAX_CHARS = 524_288

MAX_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class Grammar:
    """A compiled constraint; `begin` gives what follows one text."""

    table: TokenTable
    _prototype: LLMatcher = field(repr=False)

    def begin(self) -> LLMatcher:
        """Returns a matcher at the start of the grammar, which shares nothing with others that is changed."""
        return self._prototype.deep_copy()


def compile_constraint(constraint: Constraint, table: TokenTable) -> Grammar:
    """Compiles a constraint; GrammarError, with the library's reason, where it is wrong or costs too much.

    A grammar of which no text can begin is refused too.
    """
    matcher = LLMatcher(table.tokenizer, to_grammar(constraint), log_level=0, limits=LIMITS)
    _check(matcher)
    trial = matcher.deep_copy()
    trial.compute_bitmask()
    _check(trial)
    trial.try_consume_tokens(trial.compute_ff_tokens())
    trial.compute_bitmask()
    _check(trial)
    return Grammar(table, matcher)


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise GrammarError(reason(matcher))


def reason(matcher: LLMatcher) -> str:
    """Returns what the library says of a matcher that failed, on one line and not too long."""
    words = " ".join(str(matcher.get_error()).replace("<non-verbose/>", "").split())
    if "NoExtension" in words:
        return "no text satisfies it"
    return words[:MAX_REASON_CHARS]


class Grammars:
    """Compiles each constraint once, also a wrong one, and keeps the newest. May be asked from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """The vocabulary is read when it is needed first."""
        self._vocabulary = vocabulary
        self._table: TokenTable | None = None
        self._reading = Lock()
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str], Grammar | GrammarError] = OrderedDict()
        self._num_chars = 0

    @property
    def table(self) -> TokenTable:
        """The vocabulary's tokens; GrammarError where they cannot be read."""
        with self._reading:
            if self._table is None:
                self._table = TokenTable.of(self._vocabulary)
            return self._table

    def known(self, constraint: Constraint) -> bool:
        """Whether `get` answers at once."""
        with self._lock:
            return _key(constraint) in self._kept

    def get(self, constraint: Constraint) -> Grammar:
        """Returns the constraint's grammar, compiled now where it is not known.

        GrammarError as `compile_constraint`.
        """
        key = _key(constraint)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        if found is None:
            found = self._compile(constraint)
            self._keep(key, found)
        if isinstance(found, GrammarError):
            raise GrammarError(str(found))
        return found

    def problem(self, constraint: Constraint) -> str | None:
        """Returns why a constraint cannot be served; None if it can be."""
        try:
            self.get(constraint)
        except GrammarError as error:
            return str(error)
        return None

    def _compile(self, constraint: Constraint) -> Grammar | GrammarError:
        try:
            return compile_constraint(constraint, self.table)
        except GrammarError as error:
            return error

    def _keep(self, key: tuple[str, str], found: Grammar | GrammarError) -> None:
        with self._lock:
            if key not in self._kept:
                self._num_chars += len(key[1])
            self._kept[key] = found
            while len(self._kept) > 1 and (len(self._kept) > MAX_GRAMMARS or self._num_chars > MAX_CHARS):
                oldest, _ = self._kept.popitem(last=False)
                self._num_chars -= len(oldest[1])


def _key(constraint: Constraint) -> tuple[str, str]:
    """What decides the grammar; what is thought before it does not."""
    return constraint.kind, constraint.source
