"""A test of each model at load: paged attention must compute the same logits as the model's own attention.

A short forward pass records each layer's key/value shape and sliding window. Then a few tokens go through a small pool
in pieces, with a rollback, and finally as a tree with two branches. The logits are compared with the unmodified
model's. This refuses any model that has other state than keys and values, masks in its own way, or ignores our keyword.
"""

import logging
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from goodspeed.engine.model_files.config_checks import expected_windows
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.torch.attention import interface
from goodspeed.engine.torch.attention.cuda_graphs import Inputs, Kernel, inputs_of, plain_attend
from goodspeed.engine.torch.attention.layout import lay_out
from goodspeed.engine.torch.attention.trees import Tree
from goodspeed.engine.torch.fused_llama import Fused
from goodspeed.engine.torch.kv_cache import KVPool, KVShape, sent
from goodspeed.engine.torch.packed import Packed
from goodspeed.errors import UnsupportedModelError

log = logging.getLogger(__name__)

WITHOUT_KERNEL = "%s runs without the attention kernel and without CUDA graphs: %s"

TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.15}
"""Largest difference that counts as rounding, relative to the largest logit; wrong attention far exceeds it."""


class ShapeRecorder:
    """Attends over the packed tokens as one sequence, and records each layer's shapes and window."""

    def __init__(self) -> None:
        self.shapes: dict[int, KVShape] = {}
        self.windows: dict[int, int | None] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Takes and returns the shapes of `gathered.Batch.attend`. Ignores windows, which are longer than a trial."""
        if layer in self.shapes:
            raise UnsupportedModelError(
                f"layer {layer} attends twice in a forward pass, which needs two caches; use another model"
            )
        self.shapes[layer] = KVShape(key.shape[0], key.shape[2], value.shape[2])
        self.windows[layer] = window
        num_folded = query.shape[1] // key.shape[0]
        key, value = (x.repeat_interleave(num_folded, dim=0)[None] for x in (key, value))
        out = scaled_dot_product_attention(query.transpose(0, 1)[None], key, value, is_causal=True, scale=scaling)
        return out[0].transpose(0, 1)


@torch.inference_mode()
def kv_shapes(model: Any, device: torch.device) -> tuple[KVShape, int]:
    """Returns the key/value shape of a layer, and the number of layers. Refuses a model that cannot be cached."""
    recorder = ShapeRecorder()
    tokens = torch.zeros((1, 2), dtype=torch.int64, device=device)
    positions = torch.arange(2, device=device)[None]
    try:
        model(input_ids=tokens, position_ids=positions, use_cache=False, goodspeed_batch=recorder)
    except interface.NothingHandedOn as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not pass its keyword arguments on to its attention; use another model"
        ) from error
    config = model.config.get_text_config(decoder=True)
    windows = expected_windows(config)
    missing = sorted(set(range(len(windows))) ^ set(recorder.shapes))
    if missing:
        raise UnsupportedModelError(
            f"layers {missing} of {type(model).__name__} have no keys and values of their own (recurrent, "
            "convolutional or shared state cannot be rolled back); use a model with plain attention in every layer"
        )
    for layer, window in recorder.windows.items():
        if window != windows[layer]:
            what = f"sliding window: layer {layer} has {windows[layer]} in config.json, but requests {window}"
            raise UnsupportedModelError(f"{what}; correct config.json, or use another model")
    shapes = set(recorder.shapes.values())
    if len(shapes) > 1:
        raise UnsupportedModelError(f"key/value shapes: layers differ ({shapes}); use a model with equal layers")
    return shapes.pop(), len(windows)


@torch.inference_mode()
def check_logits(
    model: Any,
    shape: KVShape,
    num_layers: int,
    vocab_size: int,
    device: torch.device,
    *,
    fuse: bool = False,
    kernel: Kernel | None = None,
) -> tuple[Any, Kernel | None]:
    """Compares a few logits, computed in pieces from a paged pool, with those of the model's own attention.

    fuse: takes the model apart and runs it by `fused_llama.py`. kernel: attention of padded passes, which are compared,
    too. Returns the module to run, and the kernel; None, with a warning, if that fails where plain attention does not.
    """
    tokens = (torch.arange(20) * 7919 + 1) % vocab_size
    other = torch.where(torch.arange(20) < 17, tokens, (tokens + 1) % vocab_size)  # the same text with another ending
    expected, branch = _own_logits(model, torch.stack([tokens, other]).to(device))
    expected = torch.cat([expected, expected[16:], branch[17:]])
    name = type(model).__name__
    run = Fused(model) if fuse else model

    def compare(kernel: Kernel | None) -> None:
        memory = KVPool(shape, num_layers, 8, 4, model.dtype, device)
        _compare(Packed(run, PagePool(8, 4), memory, kernel=kernel), tokens, other, expected, name)

    compare(None)
    if kernel is not None:
        try:
            compare(kernel)
        except Exception as error:  # from the compiler, too
            log.warning(WITHOUT_KERNEL, name, error)
            kernel = None
    return run, kernel


def _compare(packed: Packed, tokens: Tensor, other: Tensor, expected: Tensor, name: str) -> None:
    """Raises UnsupportedModelError if logits of both texts, in pieces and as a tree, are not the expected ones."""
    ids: list[int] = tokens.tolist()
    rows = [packed.forward([Chunk("a", ids[:7], 7), Chunk("b", ids[3:4], 0)])]
    packed.forward([Chunk("a", ids[3:6], 0), Chunk("b", ids[:2], 0)])
    packed.pool.truncate("a", 7)
    rows += [packed.forward([Chunk("b", ids[5:6], 0), Chunk("a", ids[7:8], 1)])]
    rows += [packed.forward([Chunk("a", ids[8:], 12)])]
    for key in ("a", "b"):
        packed.pool.free(key)
    tree = Chunk("c", [*ids, *other[17:].tolist()], 7, [-1, 0, 1, 2, 0, 4, 5])
    rows += [packed.forward([tree])]
    differences, largest = (torch.cat(rows) - expected).abs().amax(dim=-1), expected.abs().max().item()
    # In 16 bits, rounding sends a few tokens to other experts; the parts' medians still reveal wrong attention.
    parts = torch.split(differences, [7, 13, 4, 3])  # in one piece, in pieces, the tree's first branch, its second
    dtype = packed.memory.dtype
    difference = (differences.max() if dtype == torch.float32 else max(part.median() for part in parts)).item()
    if not difference <= TOLERANCE[dtype] * largest:
        raise UnsupportedModelError(
            f"{name}: logits differ from the model's own by {difference:.3g} (largest {largest:.3g}); "
            "the engine does not support something in this model's attention; use another model"
        )


@torch.inference_mode()
def check_kernel(kernel: Kernel, shape: KVShape, num_heads: int, dtype: torch.dtype, device: torch.device) -> None:
    """Compares a kernel with plain attention over random keys: long and short chunks, trees, padding, a window.

    Raises ValueError if they differ.
    """
    generator = torch.Generator().manual_seed(0)
    pool = KVPool(shape, 1, 40, 16, dtype, device)
    pool.rows[0].copy_(torch.randn(pool.rows[0].shape, generator=generator))
    starts, counts, pages = [0, 250, 15, 16, 70, 30], [9, 1, 2, 12, 1, 2], np.random.default_rng(0).permutation(40)
    tables = [pages[:1], pages[1:17], pages[17:19], pages[19:21], pages[21:26], pages[26:28]]
    trees = {
        3: Tree.of([-1, 0, 0, -1, 1, 3, 3]),
        5: Tree.of([-1, -1, 0, 1, 2]),
    }  # of the second, three nodes are cached
    branching = {number: tree for number, tree in trees.items() if tree is not None}
    layout = lay_out(starts, counts, tables, 16, branching)
    query = torch.randn((80, num_heads, shape.key_dim), generator=generator).to(device, dtype)
    for num_rows, window in product((32, 80), (None, 40)):  # keys are read in four parts, and in two
        numbers = inputs_of(np.arange(sum(counts)), layout, num_rows, pool.spare)
        inputs = Inputs.of(sent(numbers, device), num_rows)
        found, expected = (one(inputs, pool, 0, query[:num_rows], None, window) for one in (kernel, plain_attend))
        difference = (found - expected).abs().max().item() / expected.abs().max().item()
        if not difference <= TOLERANCE[dtype] / 4:
            raise ValueError(f"attention with a window of {window} differs by {difference:.3g} of the largest number")


def _own_logits(model: Any, tokens: Tensor) -> Tensor:
    own = "sdpa" if model._supports_sdpa else "eager"
    model.set_attn_implementation(own)
    try:
        logits: Tensor = model(input_ids=tokens, use_cache=False).logits
    finally:
        model.set_attn_implementation(interface.NAME)
    return logits
