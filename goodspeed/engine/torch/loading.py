"""Loads a checkpoint, tries whether it can be served, and starts its engine.

This module is the engine `torch` (`engines.EngineKind`).
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from goodspeed.engine.base import Checkpoint
from goodspeed.engine.model_files.config_checks import naming
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.attention import interface
from goodspeed.engine.torch.attention.cuda_graphs import Kernel
from goodspeed.engine.torch.engine import TorchEngine, Tried
from goodspeed.engine.torch.fused_llama import can_fuse
from goodspeed.engine.torch.kv_cache import bytes_per_page
from goodspeed.engine.torch.passes import Others
from goodspeed.engine.torch.trial import WITHOUT_KERNEL, check_kernel, check_logits, kv_shapes
from goodspeed.errors import ConfigError, UnsupportedModelError

log = logging.getLogger(__name__)


def load(name: str, *, num_threads: int = 1, **options: Any) -> Checkpoint:
    """Loads a model; see `checkpoints.load`. num_threads: torch has them already (`engines.set_threads`)."""
    with _on_device(name):
        return checkpoints.load(name, **options)


def start(checkpoint: Checkpoint, *, others: Others | None = None, **size: Any) -> TorchEngine:
    """Returns the engine; see `TorchEngine`."""
    with _on_device(checkpoint.name):
        engine = TorchEngine(checkpoint, try_model(checkpoint, is_split=others is not None), others=others, **size)
        engine.prepare()
        return engine


@contextmanager
def _on_device(name: str) -> Iterator[None]:
    """Raises ConfigError for a model that the device has no memory for."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        what = f"{name}: the GPU has too little free memory for the model"
        raise ConfigError(f"{what}; free some, or use a smaller or quantised model") from error


def token_bytes(checkpoint: Checkpoint) -> int:
    """Returns the bytes of a token in the KV cache of a whole model."""
    tried = try_model(checkpoint, is_split=False)
    return bytes_per_page(tried.shape, tried.num_layers, 1, checkpoint.dtype)


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
    model, device = checkpoint.model, checkpoint.device
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
        return check_logits(checkpoint, shape, num_layers, fuse=fuse, kernel=kernel)


def _use_paged_attention(model: torch.nn.Module) -> None:
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModelError(
            f"{type(model).__name__} bypasses transformers' AttentionInterface, so the engine cannot give it paged "
            "attention; use a model of another family, such as llama or qwen3"
        )
    model.set_attn_implementation(interface.NAME)  # type: ignore[operator]
