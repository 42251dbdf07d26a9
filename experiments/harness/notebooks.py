"""Runs the notebooks and keeps what they put out beside their sources: `notebooks/NAME.py` becomes `NAME.ipynb`.

    python -m experiments.harness.notebooks [--quick] [--out FOLDER] [NAME ...]

The source is the truth; the notebook is made anew from it each time, with nothing in it that differs from run to run.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "notebooks"
QUICK = "GOODSPEED_QUICK"
"""Set in the environment, to anything, it makes notebooks small."""

LIMIT_S = 600
METADATA = {
    "jupytext": {"formats": "ipynb,py:percent"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def names() -> list[str]:
    return sorted(source.stem for source in FOLDER.glob("*.py"))


def read(name: str) -> NotebookNode:
    """The notebook of that name as its source has it, with nothing put out."""
    notebook = jupytext.read(FOLDER / f"{name}.py")
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict({})
    return notebook


def execute(name: str, quick: bool = False) -> NotebookNode:
    """Runs it in a kernel of this environment; nbclient's CellExecutionError tells what went wrong."""
    notebook = read(name)
    environment = {key: value for key, value in os.environ.items() if key != QUICK}
    environment |= {"PYTHONPATH": str(ROOT), **({QUICK: "1"} if quick else {})}
    client = NotebookClient(
        notebook,
        timeout=LIMIT_S,
        startup_timeout=LIMIT_S,
        record_timing=False,
        resources={"metadata": {"path": str(ROOT)}},
    )
    client.execute(env=environment)
    notebook.metadata = nbformat.from_dict(METADATA)  # the kernel has added its own version
    return notebook


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.harness.notebooks", description="Execute and pair notebooks."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(names())}")
    parser.add_argument("--quick", action="store_true", help="with the small setting; nothing to be kept")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where to; default: beside the sources")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(names()):
        parser.error(f"no notebook is called {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or names():
        path = options.out / f"{name}.ipynb"
        print(f"{name}: executing; {LIMIT_S // 60} minutes at most for each cell", file=sys.stderr, flush=True)
        nbformat.write(execute(name, options.quick), path)
        print(f"{path}: {path.stat().st_size // 1000} kB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
