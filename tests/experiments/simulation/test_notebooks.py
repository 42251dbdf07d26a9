"""The notebooks run, are paired with their sources, and carry nothing of the machine that ran them."""

import sys
from itertools import groupby
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from experiments.harness import notebooks as pairing

NAMES = ("capacity_planning", "promises")
MAX_BYTES = 150_000


def stored(name):
    return nbformat.read(pairing.FOLDER / f"{name}.ipynb", as_version=4)


def cells(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in told(cell)]


def told(cell):
    """Returns what a cell puts out, but for what libraries say of this machine (its fonts, say)."""
    return [output for output in cell.outputs if output.get("name") != "stderr"]


def test_all_are_known():
    assert tuple(pairing.names()) == NAMES
    assert {path.stem for path in pairing.FOLDER.glob("*.ipynb")} == set(NAMES)


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_runs_from_its_source(name):
    executed = pairing.execute(name, quick=True)
    nbformat.validate(executed)
    kinds = {output.output_type for output in outputs(executed)}
    assert kinds == {"stream", "execute_result"}
    assert any("image/png" in output.get("data", {}) for output in outputs(executed))
    assert shape(executed) == shape(stored(name)), "what is stored was made by another source; run `make notebooks`"


def shape(notebook):
    """Returns what kind of thing each cell puts out; text that a warning of a library's interrupts is one text."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = [[sorted(output.get("data", {"text": ""})) for output in told(cell)] for cell in code]
    return [[kind for kind, _ in groupby(cell)] for cell in kinds]


@pytest.mark.parametrize("name", NAMES)
def test_is_paired(name):
    notebook = stored(name)
    assert cells(notebook) == cells(pairing.read(name)), "the source has changed; run `make notebooks`"
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert {output.output_type for output in outputs(notebook)} == {"stream", "execute_result"}
    assert all(told(cell) == cell.outputs for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("name", NAMES)
def test_carries_nothing_of_the_machine(name):
    path = pairing.FOLDER / f"{name}.ipynb"
    text = path.read_text()
    assert len(text) < MAX_BYTES
    assert stored(name).metadata == pairing.METADATA
    assert not [cell.metadata for cell in stored(name).cells if cell.metadata]
    for place in {str(pairing.ROOT), str(Path.home()), sys.prefix, "/tmp/", " at 0x"} - {"/"}:
        assert place not in text


def test_a_failing_notebook_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("# %%\n1 / 0\n")
    monkeypatch.setattr(pairing, "FOLDER", tmp_path)
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        pairing.execute("broken")


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        pairing.main(["nonsense"])
    assert "no notebook is called nonsense" in capsys.readouterr().err
