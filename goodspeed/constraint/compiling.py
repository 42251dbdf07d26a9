"""Compiles constraints within llguidance's limits, and holds each open session's compiled constraint.

Compiling releases the GIL: on a thread of its own it does not block an event loop.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeAlias

from llguidance import LLMatcher, LLParserLimits

from goodspeed.constraint.grammars import to_grammar
from goodspeed.constraint.tokens import TokenTable
from goodspeed.constraint.trial import Trial
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError
from goodspeed.untrusted import sanitize
from goodspeed.wire.generation import Constraint

MAX_QUICK_TOKENS = 1 << 16
"""Most tokens of a vocabulary that is read at the first constraint: half a second of processor time."""

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


@dataclass(frozen=True, slots=True)
class CompiledConstraint:
    """A constraint that compiles; `begin` returns the llguidance matcher for one text.

    llguidance's copies of a matcher share one lexer, including its state and its error, so one text's cost could fail
    other texts. So a matcher is compiled for each text.
    """

    table: TokenTable
    constraint: Constraint
    _ready: list[LLMatcher] = field(default_factory=list, repr=False)

    def begin(self) -> LLMatcher:
        """Returns a matcher at the start of a text, which shares no state with other matchers.

        The first one is already compiled, later ones are compiled now. ConstraintError as in `compiled_matcher`.
        """
        return self._ready.pop() if self._ready else compiled_matcher(self.constraint, self.table)


def compiled_matcher(constraint: Constraint, table: TokenTable) -> LLMatcher:
    """Compiles a constraint; ConstraintError with llguidance's reason if it is invalid or allows no first token."""
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


Compiled: TypeAlias = CompiledConstraint | ConstraintError
"""Result of compiling a constraint."""


class Constraints:
    """Compiles constraints, and holds the compiled constraints of open sessions. Thread-safe.

    Sessions share nothing, so response times reveal nothing about other users' constraints. A session's constraint is
    compiled before its first round, on another thread than the model's (`compiled`, then `hold`).
    """

    def __init__(self, vocabulary: Vocabulary, trial: Trial | None = None) -> None:
        """Reads the vocabulary at first use. trial: tries remote constraints first; None: no trial."""
        self._vocabulary = vocabulary
        self._trial = trial
        self._table: TokenTable | None = None
        self._reading = Lock()
        self._lock = Lock()
        self._held: dict[bytes, list[CompiledConstraint]] = {}  # by session

    @property
    def table(self) -> TokenTable:
        """The vocabulary's token table; ConstraintError if the tokenizer cannot be read."""
        with self._reading:
            if self._table is None:
                self._table = TokenTable.of(self._vocabulary)
            return self._table

    def prepare(self) -> None:
        """Reads a large vocabulary now, and starts the process of trials beside, before anybody waits for them.

        llguidance holds Python's lock while it reads: 2 s of processor time for 262,144 tokens.
        """
        if self._vocabulary.num_tokens > MAX_QUICK_TOKENS:
            if self._trial is not None:
                self._trial.start()
            with suppress(ConstraintError):  # the first constraint is told
                self.table  # noqa: B018

    def get(self, constraint: Constraint) -> CompiledConstraint:
        """Compiles a constraint now, without a trial; ConstraintError as in `compiled_matcher`."""
        return CompiledConstraint(self.table, constraint, [compiled_matcher(constraint, self.table)])

    def tried(self, constraint: Constraint) -> str | None:
        """Runs the trial of a constraint; returns the reason if the constraint cannot be served, else None."""
        try:
            if self._trial is not None:
                return self._trial.problem(constraint)
            self.get(constraint)
        except ConstraintError as error:
            return str(error)
        return None

    def compiled(self, constraint: Constraint) -> Compiled:
        """Compiles a constraint after its trial; returns the error instead of raising it."""
        try:
            problem = None if self._trial is None else self._trial.problem(constraint)
            return self.get(constraint) if problem is None else ConstraintError(problem)
        except ConstraintError as error:
            return ConstraintError(str(error))  # without the cause and traceback, which may be large

    def hold(self, session_id: bytes, compiled: CompiledConstraint) -> None:
        """Holds a session's compiled constraint until `release`.

        A reopened session holds at most two: the one of the round in flight, and the newest.
        """
        with self._lock:
            held = self._held.setdefault(session_id, [])
            held.append(compiled)
            if len(held) > 2:
                del held[1]

    def release(self, session_id: bytes, but: Constraint | None = None) -> None:
        """Releases a session's compiled constraints. but: the one to retain; None: none."""
        with self._lock:
            held = self._held.pop(session_id, [])
            if left := [each for each in held if each.constraint == but]:
                self._held[session_id] = left

    def holds(self, session_id: bytes, constraint: Constraint) -> bool:
        """True if the session holds this constraint compiled."""
        with self._lock:
            return any(each.constraint == constraint for each in self._held.get(session_id, ()))

    @property
    def holders(self) -> list[bytes]:
        """Sessions that hold a compiled constraint."""
        with self._lock:
            return list(self._held)

    def of(self, session_id: bytes, constraint: Constraint) -> CompiledConstraint:
        """Returns the session's compiled constraint; compiles as in `get` if the session does not hold it."""
        with self._lock:
            found = [each for each in self._held.get(session_id, ()) if each.constraint == constraint]
        return found[0] if found else self.get(constraint)
