"""The process that `trial.py` starts: reads a tokenizer, then constraints, as JSON lines; answers each with a line.

The answer to a constraint is null, or the reason for refusing it. A trial that needs too much CPU time or memory ends
this process.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from llguidance import LLMatcher

from goodspeed.constraint.grammars import compiled_matcher, failure
from goodspeed.constraint.tokens import TokenTable
from goodspeed.constraint.trial import LESS
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint

TRIAL_S = 0.25
"""CPU time of one trial after which the system ends this process."""

COMPILE_S = 0.1
"""Longest allowed compilation, in CPU time: the thread that makes masks may have to compile again."""

ROW_S = 0.01
"""Longest allowed mask among the first rows, in CPU time; llguidance's fuel bounds later masks."""

NUM_ROWS = 8
MEMORY_BYTES = 64 << 20
"""Most memory that one trial may allocate."""


def main() -> None:
    os.nice(10)  # a model runs on the same machine
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tokenizer, eos_ids = json.loads(sys.stdin.buffer.readline())
    table = TokenTable.read(tokenizer, eos_ids)
    print("true", flush=True)
    for line in sys.stdin.buffer:
        kind, source = json.loads(line)
        _limit_memory()
        signal.setitimer(signal.ITIMER_PROF, TRIAL_S)  # SIGPROF has no handler here, so it ends the process
        problem = tried(Constraint(kind, source), table)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(problem), flush=True)


def tried(constraint: Constraint, table: TokenTable) -> str | None:
    """Returns why a constraint cannot be served; None if compiling and a text's first rows are cheap."""
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
    """Returns the CPU seconds of the slowest of a text's first rows; the text is one that the constraint allows."""
    slowest = 0.0
    for row in range(NUM_ROWS):
        started = time.thread_time()
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        slowest = max(slowest, time.thread_time() - started)
        for token in table.eos_ids:
            mask &= ~(1 << token)
        if not mask or matcher.is_error():
            break
        token = mask.bit_length() - 1 if row % 2 else (mask & -mask).bit_length() - 1  # highest or lowest allowed id
        started = time.thread_time()
        matcher.try_consume_tokens([token])
        slowest = max(slowest, time.thread_time() - started)
    return slowest


def _limit_memory() -> None:
    """Limits the address space to the present size plus `MEMORY_BYTES`, if /proc exists; exceeding it is fatal."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        size = int(statm.read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = size + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
