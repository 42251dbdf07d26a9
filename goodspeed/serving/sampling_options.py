"""Sampling options for the settings of several commands.

An option whose default is None is left to the checkpoint, or to the node that is asked; `shown` says so in the help.
"""

from typing import Any

from goodspeed.serving.config import option

MAX_SEED = (1 << 63) - 1


def temperature(*, group: str, default: float | None = None, shown: str | None = None, maximum: float = 100.0) -> Any:
    return option(default, minimum=0.0, maximum=maximum, shown=shown, group=group, help="0 is greedy", metavar="T")


def top_k(*, group: str, default: int | None = None, shown: str | None = None) -> Any:
    what = "sample among the K likeliest; 0 is off"
    return option(default, minimum=0, maximum=(1 << 31) - 1, shown=shown, group=group, help=what, metavar="K")


def top_p(*, group: str, default: float | None = None, shown: str | None = None) -> Any:
    what = "sample among the likeliest that make P"
    return option(default, minimum=1e-6, maximum=1.0, shown=shown, group=group, help=what, metavar="P")


def presence_penalty(*, group: str, shown: str) -> Any:
    what = "taken from the logit of each token that the output has"
    return option(None, minimum=-2.0, maximum=2.0, shown=shown, group=group, help=what, metavar="X")


def frequency_penalty(*, group: str, shown: str) -> Any:
    what = "taken from the logit of each token for each time that the output has it"
    return option(None, minimum=-2.0, maximum=2.0, shown=shown, group=group, help=what, metavar="X")


def repetition_penalty(*, group: str, shown: str) -> Any:
    what = "makes what prompt or output have less likely; 1 is off"
    return option(None, minimum=0.01, maximum=100.0, shown=shown, group=group, help=what, metavar="X")


def min_p(*, group: str, shown: str) -> Any:
    what = "sample among what has this part of the likeliest token's probability; 0 is off"
    return option(None, minimum=0.0, maximum=1.0, shown=shown, group=group, help=what, metavar="P")


def logit_bias(*, group: str) -> Any:
    what = "added to the logit of the token of this id, -100 to 100; may be repeated"
    return option((), shown="none", group=group, help=what, metavar="ID=BIAS")


def stop_token_id(*, group: str) -> Any:
    what = "token that ends the text, beside the model's own; may be repeated"
    return option((), shown="none", group=group, help=what, metavar="ID")


def seed(*, group: str, help: str, default: int | None = None, shown: str | None = None) -> Any:
    return option(default, minimum=0, maximum=MAX_SEED, shown=shown, group=group, help=help, metavar="N")
