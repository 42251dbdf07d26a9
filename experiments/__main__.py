"""Runs every experiment in turn, each in a process of its own: `python -m experiments` (`make experiments`).

An experiment is a script with settings in `experiments/configs`. Under --json the last line is one object, with theirs
by name; results and figures are in `experiments/results`.
"""

import sys

from experiments.harness.experiment import HERE
from experiments.harness.runner import run_all


def experiments() -> list[str]:
    return sorted(settings.stem for settings in (HERE / "configs").glob("*.toml"))


def main() -> int:
    return run_all("experiments", __doc__ or "", [f"experiments.{name}" for name in experiments()])


if __name__ == "__main__":
    sys.exit(main())
