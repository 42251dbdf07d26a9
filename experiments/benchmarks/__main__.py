"""Runs every benchmark of this folder in turn, each in a process of its own: `python -m experiments.benchmarks`.

A benchmark is a module with a function `main`; it takes --quick and --json and prints one JSON object as its last line
under --json. Then the last line here is one object too, with theirs by module name.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from pathlib import Path


def benchmarks() -> list[str]:
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return [file.stem for file in files if has_main(ast.parse(file.read_text("utf-8")))]


def has_main(module: ast.Module) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in module.body)


def run(name: str, arguments: list[str]) -> tuple[int, str]:
    """Exit status and standard output, which is also passed on to standard error as it comes."""
    command = [sys.executable, "-m", f"experiments.benchmarks.{name}", *arguments]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            print(line, end="", file=sys.stderr)
    return process.returncode, "".join(lines)


def last_object(output: str) -> object:
    lines = output.strip().splitlines()
    return json.loads(lines[-1]) if lines else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    arguments = [f"--{name}" for name in ("quick", "json") if getattr(options, name)]
    results: dict[str, object] = {}
    failed = []
    for name in benchmarks():
        print(f"== {name}", file=sys.stderr)
        status, output = run(name, arguments)
        if status:
            failed.append(name)
        elif options.json:
            results[name] = last_object(output)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    if options.json:
        print(json.dumps(results | {"failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
