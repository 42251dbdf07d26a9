"""Sampling options for the settings of several commands.

An option that is not given is None: the checkpoint, or the node, decides. Knows nothing about how tokens are sampled.
"""

from typing import Any

from goodspeed.command.config import option


def temperature(*, group: str, shown: str, maximum: float = 100.0) -> Any:
    """`shown` is what the help calls the default."""
    return option(None, minimum=0.0, maximum=maximum, shown=shown, group=group, help="0 is greedy", metavar="T")


def top_k(*, group: str, shown: str) -> Any:
    """`shown` is what the help calls the default."""
    what = "sample among the K likeliest; 0 is off"
    return option(None, minimum=0, maximum=(1 << 31) - 1, shown=shown, group=group, help=what, metavar="K")


def top_p(*, group: str, shown: str) -> Any:
    """`shown` is what the help calls the default."""
    what = "sample among the likeliest that make P"
    return option(None, minimum=1e-6, maximum=1.0, shown=shown, group=group, help=what, metavar="P")
