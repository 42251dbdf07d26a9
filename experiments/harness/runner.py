"""Runs several scripts of this folder in turn, each in a process of its own; the last line may be one object of theirs.

Knows of a script only that `--quick` makes it short, and that under `--json` its last line is one JSON object.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from experiments.harness.progress import minutes
from goodspeed.serving.parser import CommandLine

GRACE_S = 10.0
"""The seconds from Ctrl-C to the end by force."""


def interpreter(module: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True)


def run_all(program: str, about: str, modules: Sequence[str], quickly: Callable[..., Any] = interpreter) -> int:
    """The whole of a command that runs these modules; 1 when one of them failed. quickly: starts one with --quick."""
    parser = CommandLine(prog=f"python -m {program}", description=about)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument(
        "--limit-s", type=float, metavar="S", help="a script that takes longer has failed; default: none"
    )
    options = parser.parse_args()
    arguments = [f"--{name}" for name in ("quick", "json") if getattr(options, name)]
    results: dict[str, object] = {}
    failed: dict[str, str] = {}  # why, by name
    began = time.monotonic()
    for number, module in enumerate(modules, 1):
        name = module.rpartition(".")[2]
        so_far = f" ({minutes(time.monotonic() - began)} so far)" if number > 1 else ""
        print(f"== {number} of {len(modules)}: {name}{so_far}", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            output = run(module, arguments, options.limit_s, quickly if options.quick else interpreter)
            if options.json:
                results[name] = last_object(output)
        except ScriptFailed as error:
            failed[name] = str(error)
        what = f"failed: {failed[name]}" if name in failed else f"{time.monotonic() - started:.0f} s"
        print(f"== {name}: {what}", file=sys.stderr, flush=True)
    for name, why in failed.items():
        print(f"failed: {name}: {why}", file=sys.stderr)
    if options.json:
        print(json.dumps(results | {"failed": list(failed)}))
    return 1 if failed else 0


class ScriptFailed(Exception):
    """Says why a script is not counted as done."""


def run(
    module: str, arguments: Sequence[str], limit_s: float | None = None, start: Callable[..., Any] = interpreter
) -> str:
    """Standard output, which is also passed on to standard error as it comes. Raises ScriptFailed."""
    lines = []
    with start(module, arguments) as process, limit(process, limit_s) as too_long:
        for line in process.stdout or ():
            lines.append(line)
            print(line, end="", file=sys.stderr)
        process.wait()
    if too_long.is_set():
        raise ScriptFailed(f"it took longer than {limit_s:g} s")
    if process.returncode:
        raise ScriptFailed(f"its exit status is {process.returncode}")
    return "".join(lines)


@contextmanager
def limit(process: Any, limit_s: float | None) -> Iterator[threading.Event]:
    """Ends the process when it takes longer: by Ctrl-C, so that it ends what it has started, and then by force."""
    too_long, over = threading.Event(), threading.Event()

    def watch() -> None:
        if over.wait(limit_s):
            return
        too_long.set()
        process.send_signal(signal.SIGINT)
        if not over.wait(GRACE_S):
            process.kill()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield too_long
    finally:
        over.set()
        watching.join()


def last_object(output: str) -> object:
    """The JSON object in the last line. Raises ScriptFailed where there is none."""
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ScriptFailed("its last line under --json is not a JSON object")
    return found
