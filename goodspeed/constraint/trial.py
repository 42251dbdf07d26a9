"""Compiles a constraint in a process of its own first, which may be killed: llguidance cannot be interrupted.

Some constraints cost it minutes or gigabytes (`multipleOf`, patterns that hold together, counted repetitions), which
no limit of its own counts. A matcher cannot pass from one process to another, so the trial measures only, and the
caller compiles again what was cheap. The process has neither model nor keys. It reads JSON and answers JSON.
"""

import json
import subprocess
import sys
import weakref
from threading import Lock, Timer

from goodspeed.constraint.tokens import as_json
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint

WORKER = ("-m", "goodspeed.constraint.worker")

START_S, ANSWER_S = 120.0, 20.0
"""Longest waits, by the clock: until the process has read the tokenizer, and for an answer. A trial ends long before by
its own limits of time and memory (`worker.py`), unless the machine hangs."""

LESS = "write fewer or simpler patterns, rules, counts or choices"
KILLED = f"compiling it takes too much time or memory; {LESS}"


class Trial:
    """One process for all constraints of a node, started at the first one. For several threads, which take turns."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.num_killed = 0  # over a constraint

    def problem(self, constraint: Constraint) -> str | None:
        """Returns why a constraint cannot be served; None for one that is right and cheap.

        Where the process ends over it, this constraint is the one that is refused, and the next starts a new process.
        ConstraintError where the vocabulary cannot be read.
        """
        with self._lock:
            process = self._process or self._started()
            answer = _ask(process, [constraint.kind, constraint.source], ANSWER_S)
            if not answer:
                self._end()
                self.num_killed += 1
                return KILLED
        problem = json.loads(answer)
        return None if problem is None else str(problem)

    def close(self) -> None:
        """Ends the process; the next constraint starts another."""
        with self._lock:
            self._end()

    def _started(self) -> "subprocess.Popen[bytes]":
        first = [as_json(self._vocabulary), list(self._vocabulary.eos_ids)]
        process = subprocess.Popen(
            [sys.executable, *WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the node, at whose end this one reads the end of its input
        )
        self._ending = weakref.finalize(self, _kill, process)
        self._process = process
        if not _ask(process, first, START_S):
            self._end()
            raise ConstraintError(
                "the process that compiles constraints does not start; look at the node's memory limits"
            )
        return process

    def _end(self) -> None:
        if self._process is not None:
            self._process = None
            self._ending()


def _ask(process: "subprocess.Popen[bytes]", message: object, wait_s: float) -> bytes:
    """Sends one line of JSON and returns the answer's; b"" where the process ended, or was killed after so long."""
    timer = Timer(wait_s, process.kill)
    timer.daemon = True
    timer.start()
    try:
        if process.stdin is None or process.stdout is None:
            return b""
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        return process.stdout.readline()
    except OSError:  # it has ended
        return b""
    finally:
        timer.cancel()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()  # closes the pipes, and waits
