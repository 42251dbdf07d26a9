"""Finds the engine that loads and runs a model: one is on torch, one on OpenVINO.

Another package adds its own under the entry point `goodspeed.engines` (docs/ENGINE.md): a name, and an object with the
methods of `EngineKind`. `--engine NAME` chooses it; `auto` is OpenVINO for GGUF files and OpenVINO folders, and torch
for checkpoints.
"""

from typing import Any, Protocol, cast

import torch

from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.engine.model_files.finding import kind_of
from goodspeed.errors import ConfigError
from goodspeed.registry import Registry


class EngineKind(Protocol):
    """Loads models, and starts engines with them. A module with these three functions will do."""

    def load(
        self, name: str, *, device: str, dtype: str, generation_config: str, num_threads: int, **more: Any
    ) -> Checkpoint:
        """Loads a model; raises CheckpointError, UnsupportedModelError or ConfigError. See `torch/checkpoints.py`."""

    def start(
        self,
        checkpoint: Checkpoint,
        *,
        num_pages: int | None = None,
        memory_fraction: float | None = None,
        page_size: int = 16,
        prefix_cache: bool = False,
        beside_bytes: int = 0,
        **more: Any,
    ) -> Engine:
        """Returns an engine with a KV cache of so many pages, or in a share of the memory; else the engine's default.

        page_size: tokens of a page; an engine with a size of its own has pages for no fewer tokens. prefix_cache: pages
        can be published, and outlive their sessions (`pages.py`). beside_bytes: of a token in the cache of another
        model, which will get pages for equally many tokens from the same share of memory.
        """

    def token_bytes(self, checkpoint: Checkpoint) -> int:
        """Returns the bytes of a token in the model's KV cache."""


def _checked(name: str, found: Any) -> EngineKind:
    """Returns an engine of another package. ConfigError if it lacks one of the functions."""
    missing = [method for method in ("load", "start", "token_bytes") if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(f"the engine {name} has no function {' and no '.join(missing)}; see docs/ENGINE.md")
    return cast(EngineKind, found)


ENGINES: Registry[EngineKind] = Registry(
    "engine",
    "goodspeed.engines",
    _checked,
    modules={"torch": "goodspeed.engine.torch.loading", "openvino": "goodspeed.engine.openvino.loading"},
)


def load(
    name: str,
    *,
    engine: str = "auto",
    device: str = "cpu",
    dtype: str = "auto",
    generation_config: str = "auto",
    num_threads: int = 1,
    **more: Any,
) -> Checkpoint:
    """Loads a model with the engine of that name; ConfigError if that returns no checkpoint of its own. more: what only
    this engine knows.

    num_threads: of the model. See `set_threads` for torch's; several models need another call of it.
    """
    engine = engine_of(name) if engine == "auto" else engine
    set_threads(num_threads, engine)
    checkpoint = ENGINES.find(engine).load(
        name, device=device, dtype=dtype, generation_config=generation_config, num_threads=num_threads, **more
    )
    if getattr(checkpoint, "engine", None) != engine:  # else another one would start with it
        raise ConfigError(
            f"the engine {engine}: load must return a Checkpoint with engine={engine!r}; see docs/ENGINE.md"
        )
    return checkpoint


def load_draft(name: str, *, engine: str = "auto", **options: Any) -> Checkpoint:
    """Loads a draft model, as `load` does. The target determines the defaults of sampling, and no text depends on the
    bits of a draft model's logits, so it is as quick as its engine can be."""
    engine = engine_of(name) if engine == "auto" else engine
    more: dict[str, Any] = {"exact": False} if engine == "openvino" else {}
    return load(name, engine=engine, generation_config="none", **options, **more)


def set_threads(num_threads: int, *engines: str) -> None:
    """Sets torch's threads in a process with models on these engines: one beside OpenVINO alone.

    torch draws the tokens whatever computes the model, but its threads wait for work in a loop: passes of OpenVINO's
    with eight texts at temperature 1 took 13.3 ms beside two of them, and 10.4 ms beside one.
    """
    torch.set_num_threads(1 if {*engines} == {"openvino"} else num_threads)


def start(checkpoint: Checkpoint, **size: Any) -> Engine:
    """Starts the engine that loaded this checkpoint; see `EngineKind.start`."""
    return ENGINES.find(checkpoint.engine).start(checkpoint, **size)


def token_bytes(checkpoint: Checkpoint) -> int:
    return ENGINES.find(checkpoint.engine).token_bytes(checkpoint)


def engine_of(name: str) -> str:
    """Returns the engine of `--engine auto` for a model."""
    return "torch" if kind_of(name) == "checkpoint" else "openvino"
