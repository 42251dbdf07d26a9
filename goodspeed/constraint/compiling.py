"""Compiles constraints after a trial, and holds each open session's compiled constraint.

Compiling releases the GIL: on a thread of its own it does not block an event loop.
"""

from contextlib import suppress
from threading import Lock
from typing import TypeAlias

from goodspeed.constraint.matcher import Matcher
from goodspeed.constraint.tokens import TokenTable
from goodspeed.constraint.trial import Trial
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError, ProcessError
from goodspeed.wire.generation import Constraint

MAX_QUICK_TOKENS = 1 << 16
"""Most tokens of a vocabulary that is read at the first constraint: half a second of processor time."""

Compiled: TypeAlias = Matcher | ConstraintError | ProcessError
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
        self._held: dict[bytes, list[Matcher]] = {}  # by session

    @property
    def table(self) -> TokenTable:
        """The vocabulary's token table; ConstraintError if the tokenizer cannot be read."""
        with self._reading:
            if self._table is None:
                self._table = TokenTable.of(self._vocabulary)
            return self._table

    def prepare(self) -> None:
        """Reads a large vocabulary, and starts the trial's process, before the first constraint arrives.

        llguidance holds the GIL while it reads: 2 s of processor time for 262,144 tokens.
        """
        if self._vocabulary.num_tokens > MAX_QUICK_TOKENS:
            if self._trial is not None:
                self._trial.start()
            with suppress(ConstraintError):  # the first constraint is told
                self.table  # noqa: B018

    def get(self, constraint: Constraint) -> Matcher:
        """Compiles a constraint now, without a trial; ConstraintError as in `grammars.compiled_matcher`."""
        matcher = Matcher(self.table, constraint)
        matcher.begin()
        return matcher

    def tried(self, constraint: Constraint) -> str | None:
        """Compiles a constraint as a test; returns the reason if it cannot be served, else None.

        In the trial's process; if there is no trial, here, without limits of time and memory. ProcessError if that
        process does not start.
        """
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
        except (ConstraintError, ProcessError) as error:
            return type(error)(str(error))  # without the cause and traceback, which may be large

    def hold(self, session_id: bytes, compiled: Matcher) -> None:
        """Holds a session's compiled constraint, which follows its text, until `release`.

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
        return self.of(session_id, constraint) is not None

    @property
    def holders(self) -> list[bytes]:
        """Sessions that hold a compiled constraint."""
        with self._lock:
            return list(self._held)

    def of(self, session_id: bytes, constraint: Constraint) -> Matcher | None:
        """Returns the session's compiled constraint; None: the session does not hold it."""
        with self._lock:
            return next((each for each in self._held.get(session_id, ()) if each.constraint == constraint), None)
