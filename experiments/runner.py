"""Runs several scripts of this folder in turn, each in a process of its own; the last line may be one object of theirs.

Knows of a script only that `--quick` makes it short, and that under `--json` its last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence


def run_all(program: str, about: str, modules: Sequence[str]) -> int:
    """The whole of a command that runs these modules; 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    arguments = [f"--{name}" for name in ("quick", "json") if getattr(options, name)]
    results: dict[str, object] = {}
    failed = []
    for module in modules:
        name = module.rpartition(".")[2]
        print(f"== {name}", file=sys.stderr, flush=True)
        started = time.perf_counter()
        status, output = run(module, arguments)
        print(f"== {name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        if status:
            failed.append(name)
        elif options.json:
            results[name] = last_object(output)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    if options.json:
        print(json.dumps(results | {"failed": failed}))
    return 1 if failed else 0


def run(module: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Exit status and standard output, which is also passed on to standard error as it comes."""
    lines = []
    with subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            print(line, end="", file=sys.stderr)
    return process.returncode, "".join(lines)


def last_object(output: str) -> object:
    lines = output.strip().splitlines()
    return json.loads(lines[-1]) if lines else None
