"""Notebooks: all of their cells run on what is stored, and what is committed of them are words and code."""

import ast
import json

import pytest

from experiments.harness.experiment import HERE

NOTEBOOKS = sorted((HERE / "notebooks").glob("*.ipynb"))
MAX_CELLS = 12
MAX_LINES = 10  # of a cell: whatever is longer belongs into a module


def cells(notebook, kind):
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == kind]


def shown(cell, names):
    """Runs a cell of our own notebooks; returns the value of its last expression, as a notebook shows it, or None."""
    *body, last = ast.parse(cell).body
    if not isinstance(last, ast.Expr):
        body.append(last)
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)  # noqa: S102
    if not isinstance(last, ast.Expr):
        return None
    value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # noqa: S307
    return value._repr_png_() if hasattr(value, "_repr_png_") else repr(value)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs_and_shows_something(notebook):
    names: dict[str, object] = {}
    everything = [shown(cell, names) for cell in cells(notebook, "code")]
    assert all(everything)
    pictures = [one for one in everything if isinstance(one, bytes)]
    assert pictures
    assert all(one.startswith(b"\x89PNG") for one in pictures)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_short_and_has_no_outputs(notebook):
    whole = json.loads(notebook.read_text())
    assert 0 < len(whole["cells"]) <= MAX_CELLS
    assert all(len(cell["source"]) <= MAX_LINES for cell in whole["cells"])
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in whole["cells"])
