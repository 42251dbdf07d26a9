"""Tables of the stored results of `experiments.live`, for a notebook."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from experiments.harness.experiment import RESULTS


def facts(folder: Path) -> dict[str, Any]:
    """Reads what --json told of the run that is stored in a folder."""
    found: dict[str, Any] = json.loads((folder / RESULTS).read_text())
    return found


class Table(str):
    """Lines of text, which a notebook shows as they are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def table(*parts: Mapping[str, Mapping[str, Any]], only: Collection[str] = ()) -> Table:
    """Returns a line for each name of each part, and a column for each of its numbers, or for each of `only`."""
    rows = [(name, numbers(figures)) for part in parts for name, figures in part.items()]
    breadths = {name: max(len(name), 8) for _, figures in rows for name in figures if name in (only or figures)}
    width = max(len(name) for name, _ in rows)
    lines = [" " * width + "".join(f" {column:>{breadth}}" for column, breadth in breadths.items())]
    for name, figures in rows:
        told = {column: f"{figures[column]:.4g}" if column in figures else "" for column in breadths}
        lines.append(
            f"{name:<{width}}" + "".join(f" {told[column]:>{breadth}}" for column, breadth in breadths.items())
        )
    return Table("\n".join(line.rstrip() for line in lines))


def numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if isinstance(value, int | float)}
