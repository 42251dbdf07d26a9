"""Options shared by several commands, as fields or base classes of their settings.

A default of None leaves the choice to the checkpoint, or to the node that serves the request; `shown` explains it in
the help.
"""

from dataclasses import MISSING, dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from goodspeed.embedded.models import GGUF_NAMES
from goodspeed.errors import ConfigError
from goodspeed.fair import policies
from goodspeed.serving.config import Settings, option
from goodspeed.serving.sampling_defaults import BOUNDS, parse_sampling

History: TypeAlias = Literal["off", "user", "node"]
"""Owners of the finished texts whose n-grams draft for a user: nobody, the user, or all users of the draft node."""

ADDRESS = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})"
"""Pattern of HOST:PORT, its groups."""

NAMES = f"an embedded name, {', '.join(GGUF_NAMES)}, FILE.gguf, a folder, or a hub name"
"""What names a model, in help."""

TRUST = "allow more than loopback without keys or encryption"

MAKERS = "what the target's makers say, else"
"""Beginning of what defaults of sampling are, in help."""

MODEL, DRAFTING, NETWORK = "model", "drafting", "network"
"""Help headings of some of these options."""


def precision(auto: str) -> Any:
    """Returns the option --dtype. auto: what the default stands for, in the help."""
    kinds = ("auto", "float32", "bfloat16", "float16")
    return option("auto", MODEL, f"precision of the forward pass; auto: {auto}", choices=kinds, metavar="TYPE")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """Options of every command that runs a model: what computes it, and where."""

    model: str = option(MISSING, MODEL, NAMES, metavar="NAME")
    engine: str = option("auto", MODEL, "torch, openvino, or a package's (docs/ENGINE.md)", metavar="NAME")
    device: str = option("cpu", MODEL, "cpu, cuda, or cuda:INDEX", pattern=r"(cpu|cuda)(:\d+)?")
    dtype: str = precision("float32 on a CPU (OpenVINO: 8-bit activations if it can), the checkpoint's own on a GPU")
    threads: int | None = option(None, MODEL, "CPU threads of the model", shown="one", minimum=1)

    @property
    def computed_by(self) -> dict[str, Any]:
        """The options of `engines.load`."""
        return {"engine": self.engine, "device": self.device, "dtype": self.dtype, "num_threads": self.threads or 1}


@dataclass(frozen=True, kw_only=True)
class NodeSettings(ModelSettings):
    """Options of both nodes."""

    memory_fraction: float | None = option(
        None,
        MODEL,
        "share of memory for the KV cache",
        shown="0.1; of a GPU's free memory 0.85",
        minimum=0.001,
        maximum=0.95,
        metavar="F",
    )
    key: str | None = option(
        None, NETWORK, "secret key, of `goodspeed keygen`", shown="none: loopback only", metavar="FILE"
    )
    trusted_network: bool = option(False, NETWORK, TRUST)
    api_key: str | None = option(
        None, NETWORK, "keys, one a line, that HTTP clients need", shown="none: loopback only", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class SamplingSettings(Settings):
    """Sampling of what leaves it open."""

    temperature: float | None = option(
        None, "sampling", "0 is greedy", shown=f"{MAKERS} 1, of chats 0.7", minimum=0.0, maximum=2.0, metavar="T"
    )
    sampling: str | None = option(
        None,
        "sampling",
        f"of what leaves it open: {', '.join(BOUNDS)}",
        shown=f"{MAKERS} the API's, of chats temperature=0.7,top_p=0.95",
        metavar="NAME=VALUE,...",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if "temperature" in self.node_sampling and self.temperature is not None:
            raise ConfigError("--temperature and --sampling both set the temperature; drop one of them")

    @cached_property
    def node_sampling(self) -> dict[str, float]:
        """The values of `--sampling`; ConfigError if one is wrong."""
        return {} if self.sampling is None else parse_sampling(self.sampling)


OWN_RULE = "NAME|MODULE:CLASS"
"""Metavar of options that take a registered name, or one of the user's own (`registry.py`)."""


def seed(group: str, help: str, *, default: int | None = None, shown: str | None = None) -> Any:
    return option(default, group, help, shown=shown, minimum=0, maximum=(1 << 63) - 1)


def policy(default: str) -> Any:
    return option(
        default,
        "rounds",
        f"who may draft how much: {', '.join(policies.names())}, or your own (docs/POLICY.md)",
        metavar=OWN_RULE,
    )


def preset(group: str = "rounds") -> Any:
    what = "paper: the rounds as published; give it to both nodes"
    return option(None, group, what, choices=("paper",))


def check_keys(key: str | None, other: str | None, name_of_other: str, *, trusted_network: bool) -> None:
    """Raises ConfigError if only one key is given, or if both are given with --trusted-network.

    key: this side's key file. other: the other side's keys. name_of_other: the option for `other` in messages, such as
    "--enrolled FOLDER".
    """
    if (key is None) != (other is None):
        raise ConfigError(f"--key FILE needs {name_of_other}, and vice versa: give both, or neither")
    if key is not None and trusted_network:
        raise ConfigError("--trusted-network is for a wire without keys, but --key is given; drop one of them")
