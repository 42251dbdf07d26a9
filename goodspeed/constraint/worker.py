"""The process that `trial.py` starts: reads a tokenizer, then constraints, a JSON text a line each; answers by lines.

The answer to a constraint is null, or why it cannot be served. A trial that needs too much processor time or memory
ends this process.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from llguidance import LLMatcher

from goodspeed.constraint.compiling import compiled_matcher, failure
from goodspeed.constraint.tokens import TokenTable
from goodspeed.constraint.trial import LESS
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint

TRIAL_S = 0.25
"""Processor time after which this process is ended."""

COMPILE_S = 0.1
"""Longest compiling that is served, in processor time: the thread that makes masks may have to do it once more."""

ROW_S = 0.01
"""Longest mask that is served, of the first rows; llguidance's fuel bounds those of later ones."""

NUM_ROWS = 8
MEMORY_BYTES = 64 << 20
"""What one trial may take in addition."""


def main() -> None:
    os.nice(10)  # a model runs beside it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tokenizer, eos_ids = json.loads(sys.stdin.buffer.readline())
    table = TokenTable.read(tokenizer, eos_ids)
    print("true", flush=True)
    for line in sys.stdin.buffer:
        kind, source = json.loads(line)
        _limit_memory()
        signal.setitimer(signal.ITIMER_PROF, TRIAL_S)  # its signal has no handler here, and ends the process
        problem = tried(Constraint(kind, source), table)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(problem), flush=True)


def tried(constraint: Constraint, table: TokenTable) -> str | None:
    """Returns why a constraint cannot be served; None where compiling and the first rows of a text are cheap."""
    started = time.thread_time()
    try:
        matcher = compiled_matcher(constraint, table)
    except ConstraintError as error:
        return str(error)
    if time.thread_time() - started > COMPILE_S:
        return f"compiling it takes more than {COMPILE_S} s; {LESS}"
    if _slowest_row(matcher, table) > ROW_S:
        return f"a mask takes more than {ROW_S} s; {LESS}"
    return failure(matcher, constraint) or None


def _slowest_row(matcher: LLMatcher, table: TokenTable) -> float:
    """Returns the processor time of the costliest of a text's first rows; the text is any that keeps the constraint."""
    slowest = 0.0
    for row in range(NUM_ROWS):
        started = time.thread_time()
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        slowest = max(slowest, time.thread_time() - started)
        for token in table.eos_ids:
            mask &= ~(1 << token)
        if not mask or matcher.is_error():
            break
        token = mask.bit_length() - 1 if row % 2 else (mask & -mask).bit_length() - 1  # the last, or the first
        started = time.thread_time()
        matcher.try_consume_tokens([token])
        slowest = max(slowest, time.thread_time() - started)
    return slowest


def _limit_memory() -> None:
    """Bounds the address space by what is taken now, where the system tells; memory that runs out ends the process."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        size = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
