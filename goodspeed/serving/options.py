"""Options shared by several commands, as fields of their settings.

A default of None leaves the choice to the checkpoint, or to the node that serves the request; `shown` explains it in
the help.
"""

from dataclasses import MISSING, fields
from typing import Any, Literal, TypeAlias, get_args

from goodspeed.embedded.models import GGUF_NAMES
from goodspeed.errors import ConfigError
from goodspeed.fair import policies
from goodspeed.serving.config import Settings, option
from goodspeed.wire.fields import Verification

NO_MODEL = "none"
"""Value of `--model` for a draft node without a model."""


SOURCE = "source:"
"""Prefix of a `--model` that is a draft source of another package, or of the user's own."""


def is_url(model: str) -> bool:
    """Returns whether a running server of llama.cpp computes this draft model."""
    return model.startswith(("http://", "https://"))


History: TypeAlias = Literal["off", "user", "node"]
"""Owners of the finished texts whose n-grams draft for a user: nobody, the user, or all users of the draft node."""

ADDRESS = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})"
"""Pattern of HOST:PORT, its groups."""

PAPER = {"verification": "ratio", "proposal": "dense-fp32", "drafter": "model", "drafters": "model"}
"""Settings of `--preset paper`, by name; a command has those of these settings that it knows."""

NAMES = f"an embedded name, {', '.join(GGUF_NAMES)}, FILE.gguf, a folder, or a hub name"
"""What names a model, in help."""

MODEL, DRAFTING, NETWORK = "model", "drafting", "network"
"""Help headings of some of these options."""


def model(which: str = "", *, default: Any = MISSING) -> Any:
    """which: prefix of the help. default: if missing, the option is required."""
    return option(default, group=MODEL, help=which + NAMES, metavar="NAME")


def device() -> Any:
    return option("cpu", pattern=r"(cpu|cuda)(:\d+)?", group=MODEL, help="cpu, cuda, or cuda:INDEX")


def engine(which: str = "") -> Any:
    """which: prefix of the help."""
    return option("auto", group=MODEL, help=which + "torch, openvino, or a package's (docs/ENGINE.md)", metavar="NAME")


def dtype(auto: str = "float32 on a CPU (OpenVINO: 8-bit activations), the checkpoint's own on a GPU") -> Any:
    """auto: what the default stands for, in the help."""
    kinds = ("auto", "float32", "bfloat16", "float16")
    about = f"precision of the forward pass; auto: {auto}"
    return option("auto", choices=kinds, group=MODEL, help=about, metavar="TYPE")


def threads() -> Any:
    return option(None, minimum=1, shown="one", group=MODEL, help="CPU threads of the model", metavar="N")


def memory_fraction() -> Any:
    return option(
        None,
        minimum=0.001,
        maximum=0.95,
        shown="0.1; of a GPU's free memory 0.85",
        group=MODEL,
        help="share of memory for the KV cache",
        metavar="F",
    )


def generation_config(help: str) -> Any:
    return option("auto", choices=("auto", "none"), group=MODEL, help=help)


def temperature(*, group: str, default: float | None = None, shown: str | None = None, maximum: float = 100.0) -> Any:
    return option(default, minimum=0.0, maximum=maximum, shown=shown, group=group, help="0 is greedy", metavar="T")


def seed(*, group: str, help: str, default: int | None = None, shown: str | None = None) -> Any:
    return option(default, minimum=0, maximum=(1 << 63) - 1, shown=shown, group=group, help=help, metavar="N")


def policy(default: str) -> Any:
    return option(
        default,
        group="rounds",
        help=f"who may draft how much: {', '.join(policies.names())}, or your own (docs/POLICY.md)",
        metavar="NAME|MODULE:CLASS",
    )


def preset(group: str = "rounds") -> Any:
    what = "paper: the rounds as published; give it to both nodes"
    return option(None, choices=("paper",), shown="none", group=group, help=what)


def take_preset(settings: Settings, name: str | None) -> None:
    """Applies the preset, if one is given; ConfigError if one of its settings was given another value."""
    for entry in fields(settings) if name else ():
        if (value := PAPER.get(entry.name)) is None:
            continue
        if getattr(settings, entry.name) not in (entry.default, value):
            raise ConfigError(f"--preset {name} has --{entry.name} {value}; drop one of them")
        object.__setattr__(settings, entry.name, value)


def slo_tier(help: str) -> Any:
    return option((), shown="none", group="service levels", help=help, metavar="NAME:ttft=500ms,tpot=50ms,window=10")


def verification() -> Any:
    return option("match", choices=get_args(Verification), group=DRAFTING, help="how drafts are verified")


def proposal() -> Any:
    kinds = ("lattice", "dense-fp16", "dense-fp32")
    what = "with ratio: what is sent of distributions"
    return option("lattice", choices=kinds, group=DRAFTING, help=what)


def trusted_network() -> Any:
    return option(False, group=NETWORK, help="allow more than loopback without keys or encryption")


def key(command: str) -> Any:
    """command: makes such a key."""
    about = f"secret key, of `{command}`"
    return option(None, shown="none: loopback only", group=NETWORK, help=about, metavar="FILE")


def api_key(group: str = NETWORK) -> Any:
    about = "keys, one a line, that HTTP clients need"
    return option(None, shown="none: loopback only", group=group, help=about, metavar="FILE")


def check_keys(key: str | None, other: str | None, name_of_other: str, *, trusted_network: bool) -> None:
    """Raises ConfigError if only one key is given, or if both are given with --trusted-network.

    key: this side's key file. other: the other side's keys. name_of_other: the option for `other` in messages, such as
    "--enrolled FOLDER".
    """
    if (key is None) != (other is None):
        raise ConfigError(f"--key FILE needs {name_of_other}, and vice versa: give both, or neither")
    if key is not None and trusted_network:
        raise ConfigError("--trusted-network is for a wire without keys, but --key is given; drop one of them")
