"""The options by which a command chooses a model and its device, for the settings of several commands."""

from dataclasses import MISSING
from typing import Any

from goodspeed.errors import ConfigError
from goodspeed.serving.config import option

GROUP = "model"
"""Heading of the help under which these options are."""

DEVICE = r"(cpu|cuda)(:\d+)?"
DTYPES = ("float32", "bfloat16", "float16")
WHERE = "an embedded name, a local folder, or a hub name"


def model(which: str = "", *, default: Any = MISSING) -> Any:
    """which: begins the help. Without a default the option is required."""
    return option(default, group=GROUP, help=which + WHERE, metavar="NAME")


def device() -> Any:
    return option("cpu", pattern=DEVICE, group=GROUP, help="cpu, cuda, or cuda:INDEX")


def dtype() -> Any:
    return option("float32", choices=DTYPES, group=GROUP, help="precision of the forward pass")


def threads() -> Any:
    return option(None, minimum=1, shown="one", group=GROUP, help="CPU threads of the model", metavar="N")


def memory_fraction() -> Any:
    return option(
        None,
        minimum=0.001,
        maximum=0.95,
        shown="0.1 on a CPU, 0.85 of what is free on a GPU",
        group=GROUP,
        help="share of the device's memory for keys and values",
        metavar="F",
    )


def kv_pages() -> Any:
    return option(
        None,
        minimum=1,
        shown="what --memory-fraction comes to",
        group=GROUP,
        help="pages of key/value memory, instead of a share",
        metavar="N",
    )


def generation_config(help: str) -> Any:
    return option("auto", choices=("auto", "none"), group=GROUP, help=help)


def check_memory(kv_pages: int | None, memory_fraction: float | None) -> None:
    """Raises ConfigError if both are given."""
    if kv_pages is not None and memory_fraction is not None:
        raise ConfigError("--kv-pages and --memory-fraction both say how much memory there is; give one of them")
