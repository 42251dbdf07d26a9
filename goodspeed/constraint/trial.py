"""Compiles a constraint in a separate process first, which can be killed: llguidance cannot be interrupted.

Some constraints cost minutes or gigabytes (`multipleOf`, patterns that apply together, counted repetitions), which no
llguidance limit counts. A matcher cannot move between processes, so the trial only measures, and the caller compiles
cheap constraints again. The process has neither model nor keys. It reads JSON lines and answers with JSON lines.
"""

import json
import subprocess
import weakref
from contextlib import suppress
from threading import Lock, Thread, Timer

from goodspeed.constraint.tokens import as_json
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError, ProcessError
from goodspeed.untrusted import python_module
from goodspeed.wire.generation import Constraint

WORKER = "goodspeed.constraint.worker"

START_S, ANSWER_S = 120.0, 20.0
"""Timeouts in wall-clock seconds: until the process has read the tokenizer, and for an answer. The process's own limits
of time and memory (`worker.py`) end a trial long before, unless the machine hangs."""

LESS = "write fewer or simpler patterns, rules, counts or choices"
UNSTARTED = "the process that compiles constraints does not start; check the node's limits of memory and processes"
KILLED = f"compiling it takes too much time or memory; {LESS}"


class Trial:
    """One process for all constraints of a node, started by `start` or at the first one. Thread-safe; callers take
    turns."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process beside the caller; constraints wait until it has read the tokenizer."""
        Thread(target=self._start, name="trial", daemon=True).start()

    def _start(self) -> None:
        with self._lock, suppress(ConstraintError, ProcessError):  # the first constraint is told
            self._process = self._process or self._started()

    def problem(self, constraint: Constraint) -> str | None:
        """Returns why a constraint cannot be served; None if it is valid and cheap.

        If the process ends during the trial, this constraint is refused, and the next trial starts a new process.
        ConstraintError if the vocabulary cannot be read, ProcessError if the process does not start.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                self._end()  # it ended between two trials, for no constraint's fault
            process = self._process or self._started()
            answer = _ask(process, [constraint.kind, constraint.source], ANSWER_S)
            if not answer:
                self._end()
                return KILLED
        problem = json.loads(answer)
        return None if problem is None else str(problem)

    def _started(self) -> "subprocess.Popen[bytes]":
        first = [as_json(self._vocabulary), list(self._vocabulary.eos_ids)]
        try:
            process = subprocess.Popen(
                python_module(WORKER),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches only the node; when this ends, the process reads end of file
            )
        except OSError as error:
            raise ProcessError(f"{UNSTARTED} ({error.strerror})") from None
        self._ending = weakref.finalize(self, _kill, process)
        self._process = process
        if not _ask(process, first, START_S):
            self._end()
            raise ProcessError(UNSTARTED)
        return process

    def _end(self) -> None:
        if self._process is not None:
            self._process = None
            self._ending()


def _ask(process: "subprocess.Popen[bytes]", message: object, wait_s: float) -> bytes:
    """Sends one line of JSON and returns the answer line; b"" if the process ended, or was killed after `wait_s`."""
    timer = Timer(wait_s, process.kill)
    timer.daemon = True
    timer.start()
    try:
        if process.stdin is None or process.stdout is None:
            return b""
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        return answer if answer.endswith(b"\n") else b""
    except OSError:  # the process has ended
        return b""
    finally:
        timer.cancel()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()  # closes the pipes, and waits for the process
