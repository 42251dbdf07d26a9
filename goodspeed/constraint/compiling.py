"""A constraint, compiled within llguidance's limits, and held for each open session that has one.

Compiling drops Python's lock, so that a thread of its own leaves an event loop alone.
"""

import re
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeAlias

from llguidance import LLMatcher, LLParserLimits

from goodspeed.constraint.sources import to_grammar
from goodspeed.constraint.tokens import TokenTable
from goodspeed.constraint.trial import Trial
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError
from goodspeed.untrusted import sanitize
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


MAX_END = 140
"""Characters of the beginning and of the end of a long message: one has the place, the other the reason."""

_PLACE = re.compile(r"^(?:at )?(\d+)\((\d+)\): ")
_EXCERPT = re.compile(r"\n\s*\d+ \| .*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CompiledConstraint:
    """A constraint that compiles; `begin` gives what follows one text.

    The library's copies of a matcher share its lexer, with all that it has read and with its error, so that one text's
    cost would end others. So each text has a matcher that was compiled for it.
    """

    table: TokenTable
    constraint: Constraint
    _ready: list[LLMatcher] = field(default_factory=list, repr=False)

    def begin(self) -> LLMatcher:
        """Returns a matcher at the start that shares nothing with others: the first is ready, later ones are compiled.

        ConstraintError as `compiled_matcher`.
        """
        return self._ready.pop() if self._ready else compiled_matcher(self.constraint, self.table)


def compiled_matcher(constraint: Constraint, table: TokenTable) -> LLMatcher:
    """Compiles a constraint; ConstraintError, with the library's reason, where it is wrong or no text can begin."""
    matcher = LLMatcher(table.tokenizer, to_grammar(constraint), log_level=0, limits=LIMITS)
    beginning = matcher if matcher.is_error() else matcher.deep_copy()
    if not beginning.is_error():
        beginning.compute_bitmask()
    if why := failure(beginning, constraint):
        raise ConstraintError(why)
    return matcher


def failure(matcher: LLMatcher, constraint: Constraint) -> str:
    """Returns what the library says of a matcher that failed, on one line; "" where it did not fail.

    Lines and columns are left out where they are not those of the constraint's own source.
    """
    said = _EXCERPT.sub("", str(matcher.get_error()).replace("<non-verbose/>", "").strip())
    if constraint.kind == "grammar":
        said = _PLACE.sub(r"line \1, column \2: ", said)
    else:
        said = _PLACE.sub("", said).removeprefix("failed to compile JSON schema: ")
    said = " ".join(said.split())
    if "NoExtension" in said:
        said = "no text satisfies it; let it end, or leave a part out"
    return sanitize(said if len(said) <= 2 * MAX_END else f"{said[:MAX_END]} ... {said[-MAX_END:]}")


def without_place(why: str) -> str:
    """Returns the same of a grammar that was made of something else, whose lines say nothing to whoever sent that."""
    return re.sub(r"^line \d+, column \d+: (?:failed to compile JSON schema: )?", "", why)


Compiled: TypeAlias = CompiledConstraint | ConstraintError
"""What came of compiling a constraint."""


class Constraints:
    """Compiles constraints, and holds those of open sessions. For several threads.

    Nothing is shared between sessions: how long an answer takes tells nobody what others have sent. What a session
    holds was compiled before it was opened, on another thread (`compiled`, then `offer`), not by the model's thread.
    """

    def __init__(self, vocabulary: Vocabulary, trial: Trial | None = None) -> None:
        """The vocabulary is read when it is needed first. trial: what others have sent is tried there first."""
        self._vocabulary = vocabulary
        self._trial = trial
        self._table: TokenTable | None = None
        self._reading = Lock()
        self._lock = Lock()
        self._newest: tuple[Constraint, Compiled] | None = None  # that no session holds
        self._held: dict[bytes, list[tuple[Constraint, CompiledConstraint]]] = {}  # by session

    @property
    def table(self) -> TokenTable:
        """The vocabulary's tokens; ConstraintError where they cannot be read."""
        with self._reading:
            if self._table is None:
                self._table = TokenTable.of(self._vocabulary)
            return self._table

    def get(self, constraint: Constraint) -> CompiledConstraint:
        """Compiles a constraint now, without a trial; ConstraintError as `compiled_matcher`."""
        return CompiledConstraint(self.table, constraint, [compiled_matcher(constraint, self.table)])

    def tried(self, constraint: Constraint) -> str | None:
        """Returns why a constraint cannot be served, by a trial; None where it can be."""
        try:
            if self._trial is not None:
                return self._trial.problem(constraint)
            self.get(constraint)
        except ConstraintError as error:
            return str(error)
        return None

    def compiled(self, constraint: Constraint) -> Compiled:
        """Compiles a constraint that passes its trial, and returns also why that cannot be."""
        try:
            problem = None if self._trial is None else self._trial.problem(constraint)
            return self.get(constraint) if problem is None else ConstraintError(problem)
        except ConstraintError as error:
            return ConstraintError(str(error))  # without what led to it, which may be large

    def offer(self, constraint: Constraint, compiled: Compiled) -> None:
        """Gives what was compiled for the session that is opened next, so that `problem` and `hold` need not do it."""
        with self._lock:
            self._newest = (constraint, compiled)

    def problem(self, session_id: bytes, constraint: Constraint) -> str | None:
        """Returns why a session cannot be opened with this constraint; None if it can be."""
        if self.holds(session_id, constraint):
            return None
        compiled = self._offered(constraint)
        return str(compiled) if isinstance(compiled, ConstraintError) else None

    def hold(self, session_id: bytes, constraint: Constraint) -> None:
        """Keeps a session's grammar until `release`. Called by whoever opens and closes sessions.

        A session that is opened again has two at most: the one of the round in flight, and its newest. Raises as
        `compiled_matcher`.
        """
        if self.holds(session_id, constraint):
            return
        compiled = self._offered(constraint)
        if isinstance(compiled, ConstraintError):
            raise ConstraintError(str(compiled))
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
        """Returns whether the session holds this constraint's grammar."""
        with self._lock:
            return any(each == constraint for each, _ in self._held.get(session_id, ()))

    @property
    def holders(self) -> list[bytes]:
        """The sessions that hold anything."""
        with self._lock:
            return list(self._held)

    def of(self, session_id: bytes, constraint: Constraint) -> CompiledConstraint:
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
