"""Engines: what loads a model and computes its logits for many sessions. One is on torch, one on OpenVINO.

Another package adds its own under the entry point `goodspeed.engines` (docs/ENGINE.md): a name, and an object with the
methods of `EngineKind`. `--engine NAME` chooses it; `auto` is OpenVINO for GGUF files and OpenVINO folders, and torch
for checkpoints.
"""

from collections.abc import Hashable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.tokenizing.text import check_ids
from goodspeed.errors import ConfigError, PromptError, first_line

if TYPE_CHECKING:
    from goodspeed.engine.checkpoints import Checkpoint

GROUP = "goodspeed.engines"
"""Entry points of other packages' engines."""

BUILT_IN = {"torch": "goodspeed.engine.runner", "openvino": "goodspeed.engine.openvino.loading"}
"""Modules with the engines of this package, by name."""

CPU_KEPT = 0.25
"""Share of the pages that the prefix cache retains on a CPU if no memory size was given. Other processes can use the
untouched rest."""


class Engine(Protocol):
    """A model with the KV cache of its sessions. `pool` tracks each session's pages and the free ones.

    No locks: `forward`, `keep` and `clear` run on the model's thread, and the pool changes elsewhere only while that
    thread is idle.
    """

    checkpoint: "Checkpoint"
    pool: PagePool

    @property
    def has_trees(self) -> bool:
        """True if chunks may end in trees; else every draft is a chain."""

    @property
    def has_finite_keys(self) -> bool:
        """True if the KV cache remains finite where the model overflows."""

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Appends chunks to their sessions; returns logits [sum(num_logits), vocab_size] in float32, in chunk order.

        Columns beyond the tokenizer are -inf. Raises PoolExhausted (too few pages) or PromptError (a session would
        outgrow the context, or an id is not the tokenizer's), and changes nothing then.
        """

    def keep(self, paths: Sequence[TreePath]) -> None:
        """Retains a path through each tree of an earlier `forward`, and drops the other nodes."""

    def clear(self, keys: Sequence[Hashable]) -> None:
        """Overwrites the KV cache of sessions with logits that are not numbers."""

    def truncate(self, key: Hashable, length: int) -> int:
        """Drops a session's positions from `length` on; returns the remaining length.

        Less than `length` remains only if `length` lies in a page shared with other sessions (`PagePool.truncate`).
        """

    def free(self, key: Hashable) -> None:
        """Closes a session and releases its pages."""


class EngineKind(Protocol):
    """Loads models, and starts engines with them. A module with these two functions will do."""

    def load(
        self, name: str, *, device: str, dtype: str, generation_config: str, num_threads: int, **more: Any
    ) -> "Checkpoint":
        """Loads a model; raises CheckpointError, UnsupportedModelError or ConfigError. See `checkpoints.load`."""

    def start(
        self,
        checkpoint: "Checkpoint",
        *,
        num_pages: int | None = None,
        memory_fraction: float | None = None,
        page_size: int = 16,
        prefix_cache: bool = False,
        beside: "Checkpoint | None" = None,
        **more: Any,
    ) -> Engine:
        """Returns an engine with a KV cache of so many pages, or in a share of the memory; else the engine's default.

        page_size: tokens of a page, unless the engine has a size of its own. prefix_cache: pages can be published, and
        outlive their sessions (`pages.py`). beside: another model, which will get equally many pages from the same
        share of memory.
        """

    def page_bytes(self, checkpoint: "Checkpoint", page_size: int) -> int:
        """Returns the bytes of a page in the model's KV cache."""


def load(
    name: str,
    *,
    engine: str = "auto",
    device: str = "cpu",
    dtype: str = "auto",
    generation_config: str = "auto",
    num_threads: int = 1,
    **more: Any,
) -> "Checkpoint":
    """Loads a model with the engine of that name. more: what only this engine knows."""
    kind = find(engine_of(name) if engine == "auto" else engine)
    return kind.load(
        name, device=device, dtype=dtype, generation_config=generation_config, num_threads=num_threads, **more
    )


def start(checkpoint: "Checkpoint", **size: Any) -> Engine:
    """Starts the engine that loaded this checkpoint; see `EngineKind.start`."""
    return find(checkpoint.engine).start(checkpoint, **size)


def page_bytes(checkpoint: "Checkpoint", page_size: int) -> int:
    """Returns the bytes of a page of so many tokens, or of the engine's own size, in the KV cache of a model."""
    return find(checkpoint.engine).page_bytes(checkpoint, page_size)


def engine_of(name: str) -> str:
    """Returns the engine of `--engine auto` for a model."""
    from goodspeed.engine.sources import kind_of  # files of GGUF need packages that torch's engine does without

    return "torch" if kind_of(name) == "checkpoint" else "openvino"


def find(name: str) -> EngineKind:
    """Returns the engine of a name; ConfigError if there is none, or if its package cannot be imported."""
    if name in BUILT_IN:
        built_in: Any = import_module(BUILT_IN[name])
        return built_in  # type: ignore[no-any-return]
    others = {found.name: found for found in entry_points(group=GROUP)}
    if name not in others:
        raise ConfigError(f"--engine {name!r} is unknown; use auto, {', '.join(sorted({*BUILT_IN, *others}))}")
    try:
        loaded: EngineKind = others[name].load()
    except Exception as error:  # whatever the package raises
        where = others[name].value
        raise ConfigError(f"--engine {name}: {where} cannot be imported ({first_line(error)})") from error
    return loaded


# -- parts of engines ----------------------------------------------------------------------------------------------


def check_fits(chunk: Chunk, pool: PagePool, checkpoint: "Checkpoint") -> None:
    """Raises PromptError if the session would outgrow the context, or if an id is not the tokenizer's."""
    length = pool.length(chunk.key) + len(chunk.tokens) + chunk.num_masks
    limit = checkpoint.context_len
    if length > limit:
        raise PromptError(f"{length} tokens do not fit into this model's context of {limit}; use a shorter prompt")
    check_ids(checkpoint.tokenizer, chunk.tokens, checkpoint.num_tokens)


def masked(logits: Tensor, checkpoint: "Checkpoint") -> Tensor:
    """Sets the columns beyond the tokenizer, and of the mask, to -inf, in place."""
    if checkpoint.num_tokens < logits.shape[1]:
        logits[:, checkpoint.num_tokens :] = float("-inf")
    if checkpoint.mask_id is not None:
        logits[:, checkpoint.mask_id] = float("-inf")
    return logits
