"""The engine on torch: one model that serves a ragged batch of long-lived sessions.

This module is the engine `torch` (`engines.EngineKind`). Verify chunks, prefill chunks and single drafting steps share
one packed forward pass; truncation drops rejected tokens.
"""

import logging
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from goodspeed.engine.base import Checkpoint, check_fits, masked
from goodspeed.engine.model_files.config_checks import naming
from goodspeed.engine.paged.cache_size import make_pool
from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.attention import interface
from goodspeed.engine.torch.attention.cuda_graphs import Kernel
from goodspeed.engine.torch.fused_llama import can_fuse
from goodspeed.engine.torch.kv_cache import KVPool, KVShape, bytes_per_page
from goodspeed.engine.torch.packed import Packed
from goodspeed.engine.torch.passes import Memory, Others
from goodspeed.engine.torch.trial import WITHOUT_KERNEL, check_kernel, check_logits, kv_shapes
from goodspeed.errors import UnsupportedModelError

log = logging.getLogger(__name__)


def load(name: str, *, num_threads: int = 1, **options: Any) -> Checkpoint:
    """Loads a model; see `checkpoints.load`. num_threads: torch has them already (`engines.set_threads`)."""
    return checkpoints.load(name, **options)


def start(checkpoint: Checkpoint, **size: Any) -> "TorchEngine":
    """Returns the engine; see `TorchEngine`."""
    return TorchEngine(checkpoint, **size)


def token_bytes(checkpoint: Checkpoint) -> int:
    """Returns the bytes of a token in the KV cache of a whole model."""
    tried = try_model(checkpoint, is_split=False)
    return bytes_per_page(tried.shape, tried.num_layers, 1, checkpoint.dtype)


class TorchEngine:
    """A checkpoint with the KV cache of its sessions. See `Engine` for what each method promises.

    The cache's size is given in pages, or as a fraction of the device's memory (`cache_size.make_pool`).
    """

    has_trees = True
    change_rows = 0.0
    computed: float | None = None

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        num_pages: int | None = None,
        memory_fraction: float | None = None,
        page_size: int = 16,
        prefix_cache: bool = False,
        others: Others | None = None,
        beside_bytes: int = 0,
    ) -> None:
        """prefix_cache: pages can be published, and outlive their sessions (`pages.py`). beside_bytes: of a token
        in the cache of another model, which will get equally many pages from the same share of memory.

        others: ranks that hold the other parts of a split model; None: the model is not split. num_pages: per rank.
        """
        self.checkpoint = checkpoint
        model, shape, num_layers, kernel = try_model(checkpoint, is_split=others is not None)
        num_sharing = others.num_ranks if others is not None and checkpoint.device.type == "cpu" else 1
        one_page = bytes_per_page(shape, num_layers, page_size, checkpoint.dtype) + beside_bytes * page_size
        self.pool = make_pool(
            one_page * num_sharing,
            page_size,
            checkpoint.device,
            num_pages=num_pages,
            memory_fraction=memory_fraction,
            prefix_cache=prefix_cache,
        )
        size = Memory(self.pool.num_pages, page_size)
        with nullcontext() if others is None else others.told(size):
            memory = KVPool(shape, num_layers, size.num_pages, page_size, checkpoint.dtype, checkpoint.device)
        self._packed = Packed(model, self.pool, memory, others, kernel)
        self.num_graphs = self._packed.prepare()

    @property
    def has_finite_keys(self) -> bool:
        """True if the KV cache remains finite where the model overflows (`KVPool.is_finite`)."""
        return self._packed.memory.is_finite

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """See `Engine.forward`; returns an inference-mode tensor.

        Every node of a tree counts towards the context, since each has its own row. The column of a checkpoint's mask
        is also -inf; the keys and values of a chunk's masks are dropped.
        """
        for chunk in chunks:
            if chunk.num_masks and self.checkpoint.mask_id is None:
                raise ValueError("masks need a checkpoint with a mask token")
            check_fits(chunk, self.pool, self.checkpoint)
        mask_id = self.checkpoint.mask_id
        logits = self._packed.forward([_with_masks(chunk, mask_id) for chunk in chunks]).float()
        for chunk in chunks:
            if chunk.num_masks:
                self.pool.truncate(chunk.key, self.pool.length(chunk.key) - chunk.num_masks)
        return masked(logits, self.checkpoint)

    @torch.inference_mode()
    def keep(self, paths: Sequence[TreePath]) -> None:
        """See `Engine.keep`."""
        self._packed.keep(paths)

    @torch.inference_mode()
    def clear(self, keys: Sequence[Hashable]) -> None:
        """See `Engine.clear`."""
        self._packed.clear(keys)

    def truncate(self, key: Hashable, length: int) -> int:
        """See `Engine.truncate`."""
        return self.pool.truncate(key, length)

    def free(self, key: Hashable) -> None:
        """See `Engine.free`."""
        self.pool.free(key)


def _with_masks(chunk: Chunk, mask_id: int | None) -> Chunk:
    if not chunk.num_masks or mask_id is None:
        return chunk
    return replace(chunk, tokens=[*chunk.tokens, *repeat(mask_id, chunk.num_masks)])


class Tried(NamedTuple):
    """Results of a model's trial."""

    model: nn.Module  # the module to run
    shape: KVShape  # of a layer; of a split model, of this rank's part
    num_layers: int
    kernel: Kernel | None  # attention of padded passes


def kernel_for(device: torch.device) -> Kernel | None:
    """Returns the kernel for a device; None: passes are not padded there. ImportError if Triton is missing."""
    if device.type != "cuda":
        return None
    from goodspeed.engine.torch.attention import triton_kernel  # Triton comes with torch's CUDA builds only

    return triton_kernel.attend


def try_model(checkpoint: Checkpoint, *, is_split: bool) -> Tried:
    """Prepares a checkpoint's model for paged attention, and tests it (`trial.py`).

    A second call returns the same, since `fused_llama.py` takes the checkpoint's own model apart. All ranks of a split
    model call this at the same time.
    """
    known = vars(checkpoint.model)
    if "goodspeed" not in known:
        known["goodspeed"] = _try(checkpoint, is_split)
    tried: Tried = known["goodspeed"]
    return tried


@torch.inference_mode()
def _try(checkpoint: Checkpoint, is_split: bool) -> Tried:
    model, device, num_tokens = checkpoint.model, checkpoint.device, checkpoint.num_tokens
    with naming(checkpoint.name):
        _use_paged_attention(model)
        shape, num_layers = kv_shapes(model, device)
        kernel: Kernel | None = None
        if not is_split:
            try:
                if (kernel := kernel_for(device)) is not None:
                    config: Any = model.config
                    num_heads: int = config.get_text_config(decoder=True).num_attention_heads
                    check_kernel(kernel, shape, num_heads, checkpoint.dtype, device)
            except Exception as error:  # from the compiler, too: plain attention is used after any error
                log.warning(WITHOUT_KERNEL, checkpoint.name, error)
                kernel = None
        fuse = not is_split and can_fuse(model)
        run, kernel = check_logits(model, shape, num_layers, num_tokens, device, fuse=fuse, kernel=kernel)
    return Tried(run, shape, num_layers, kernel)


def _use_paged_attention(model: torch.nn.Module) -> None:
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModelError(
            f"{type(model).__name__} bypasses transformers' AttentionInterface, so the engine cannot give it paged "
            "attention; use a model of another family, such as llama or qwen3"
        )
    model.set_attn_implementation(interface.NAME)  # type: ignore[operator]
