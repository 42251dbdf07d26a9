"""A test of each model at load: paged attention must compute the same logits as the model's own attention.

A short forward pass records each layer's key/value shape and sliding window. Then a few tokens go through a small pool
in pieces, with a rollback, and finally as a tree with two branches. The logits are compared with the unmodified
model's. This refuses any model that has other state than keys and values, masks in its own way, or ignores our keyword.
"""

import logging
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from goodspeed.engine.base import Checkpoint
from goodspeed.engine.model_files.config_checks import expected_windows
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch.attention import interface
from goodspeed.engine.torch.attention.cuda_graphs import Inputs, Kernel, inputs_of, plain_attend
from goodspeed.engine.torch.attention.layout import lay_out
from goodspeed.engine.torch.attention.trees import Tree
from goodspeed.engine.torch.engine import TorchEngine, Tried
from goodspeed.engine.torch.fused_llama import Fused
from goodspeed.engine.torch.kv_cache import KVPool, KVShape, sent
from goodspeed.errors import UnsupportedModelError

log = logging.getLogger(__name__)

NUM_PAGES, PAGE_SIZE = 8, 4
"""Size of the pool that the logits are computed from."""

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
    checkpoint: Checkpoint, shape: KVShape, num_layers: int, *, fuse: bool = False, kernel: Kernel | None = None
) -> Tried:
    """Compares a few logits, computed in pieces from a paged pool, with those of the model's own attention.

    fuse: takes the model apart and runs it by `fused_llama.py`. kernel: attention of padded passes, which are compared,
    too; the result has none, with a warning, if that fails where plain attention does not.
    """
    model, num_tokens = checkpoint.model, checkpoint.num_tokens
    tokens = (torch.arange(20) * 7919 + 1) % num_tokens
    other = torch.where(torch.arange(20) < 17, tokens, (tokens + 1) % num_tokens)  # the same text with another ending
    expected, branch = _own_logits(model, torch.stack([tokens, other]).to(checkpoint.device))
    expected = torch.cat([expected, expected[16:], branch[17:]])
    name = type(model).__name__
    tried = Tried(Fused(model) if fuse else model, shape, num_layers, None)
    served = replace(checkpoint, num_tokens=checkpoint.vocab_size, mask_id=None, context_len=NUM_PAGES * PAGE_SIZE)

    def compare(tried: Tried) -> None:
        engine = TorchEngine(served, tried, num_pages=NUM_PAGES, page_size=PAGE_SIZE)
        _compare(engine, tokens, other, expected, name)

    compare(tried)
    if kernel is not None:
        try:
            compare(tried._replace(kernel=kernel))
        except Exception as error:  # from the compiler, too
            log.warning(WITHOUT_KERNEL, name, error)
            kernel = None
    return tried._replace(kernel=kernel)


def _compare(engine: TorchEngine, tokens: Tensor, other: Tensor, expected: Tensor, name: str) -> None:
    """Raises UnsupportedModelError if logits of both texts, in pieces and as a tree, are not the expected ones."""
    ids: list[int] = tokens.tolist()
    rows = [engine.forward([Chunk("a", ids[:7], 7), Chunk("b", ids[3:4], 0)])]
    engine.forward([Chunk("a", ids[3:6], 0), Chunk("b", ids[:2], 0)])
    engine.pool.truncate("a", 7)
    rows += [engine.forward([Chunk("b", ids[5:6], 0), Chunk("a", ids[7:8], 1)])]
    rows += [engine.forward([Chunk("a", ids[8:], 12)])]
    for key in ("a", "b"):
        engine.pool.free(key)
    tree = Chunk("c", [*ids, *other[17:].tolist()], 7, [-1, 0, 1, 2, 0, 4, 5])
    rows += [engine.forward([tree])]
    differences, largest = (torch.cat(rows) - expected).abs().amax(dim=-1), expected.abs().max().item()
    # In 16 bits, rounding sends a few tokens to other experts; the parts' medians still reveal wrong attention.
    parts = torch.split(differences, [7, 13, 4, 3])  # in one piece, in pieces, the tree's first branch, its second
    dtype = engine.checkpoint.dtype
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
    parents = {3: [-1, 0, 0, -1, 1, 3, 3], 5: [-1, -1, 0, 1, 2]}  # of the second tree, three nodes are cached
    branching = {number: tree for number, own in parents.items() if (tree := Tree.of(own)) is not None}
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
