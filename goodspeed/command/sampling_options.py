"""Sampling options for the settings of several commands.

An option whose default is None is left to the checkpoint, or to the node that is asked; `shown` says so in the help.
Knows nothing about sampling.
"""

from typing import Any

from goodspeed.command.config import option

MAX_SEED = (1 << 63) - 1


def temperature(*, group: str, default: float | None = None, shown: str | None = None, maximum: float = 100.0) -> Any:
    return option(default, minimum=0.0, maximum=maximum, shown=shown, group=group, help="0 is greedy", metavar="T")


def top_k(*, group: str, default: int | None = None, shown: str | None = None) -> Any:
    what = "sample among the K likeliest; 0 is off"
    return option(default, minimum=0, maximum=(1 << 31) - 1, shown=shown, group=group, help=what, metavar="K")


def top_p(*, group: str, default: float | None = None, shown: str | None = None) -> Any:
    what = "sample among the likeliest that make P"
    return option(default, minimum=1e-6, maximum=1.0, shown=shown, group=group, help=what, metavar="P")


def seed(*, group: str, help: str, default: int | None = None, shown: str | None = None) -> Any:
    return option(default, minimum=0, maximum=MAX_SEED, shown=shown, group=group, help=help, metavar="N")
