"""The protocol of every engine (`Engine`), a model that computes logits for many sessions, and what engines share.

Imports no transformers: it takes a second, and not every engine needs it.
"""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.tokenizing.text import check_ids, num_shared
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, PromptError

logger = logging.getLogger("goodspeed.engine")


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Vocabulary):
    """A model with its vocabulary and their properties; logits beyond `num_tokens` are masked."""

    model: Any  # what its engine computes; torch's: a module in eval mode, on device
    vocab_size: int  # width of the logits
    context_len: int  # prompt and generated tokens together
    device: torch.device
    dtype: torch.dtype
    engine: str = "torch"  # that loaded it (`engines.py`)
    activations: str = ""  # precision of the forward pass, where it is not `dtype`, which the logits have
    num_ranks: int = 1  # processes that the model is split over
    mask_id: int | None = None  # id of the mask token for tokens not known yet (PARD); None: the model has none
    num_parallel: int = 1  # tokens drafted in one pass, with num_parallel - 1 masks after the text

    @classmethod
    def of(cls, vocabulary: Vocabulary, num_rows: int, **properties: Any) -> "Checkpoint":
        """Returns a model with this vocabulary and further properties; CheckpointError if they do not belong together.

        num_rows: width of the logits. A model may lack rows for added tokens; prompts with these are refused.
        """
        known = num_shared(vocabulary.tokenizer, num_rows)
        if known is None:
            what = f"the tokenizer has {vocabulary.num_tokens} tokens and the model only {num_rows} rows"
            raise CheckpointError(f"{vocabulary.name}: {what}; use the tokenizer that belongs to the model")
        if known < vocabulary.num_tokens:
            told = "%s: the model has no rows for the added tokens from id %d on; prompts with them are refused"
            logger.warning(told, vocabulary.name, known)
        eos_ids = tuple(token for token in vocabulary.eos_ids if token < known)
        return cls(**vars(vocabulary) | {"eos_ids": eos_ids, "num_tokens": known, "vocab_size": num_rows} | properties)

    @property
    def precision(self) -> str:
        """Precision of the forward pass, such as "bfloat16" or "int8"."""
        return self.activations or str(self.dtype).removeprefix("torch.")


class Engine(Protocol):
    """A model with the KV cache of its sessions. `pool` tracks each session's pages and the free ones, truncates a
    session and closes it.

    No locks: `forward`, `keep` and `clear` run on the model's thread, and the pool changes elsewhere only while that
    thread is idle.
    """

    checkpoint: Checkpoint
    pool: PagePool

    @property
    def change_rows(self) -> float:
        """Rows that take as long as a change of size: a pass of another number of rows than the one before takes so
        much longer. 0.0: sizes may vary freely."""

    @property
    def least_rows(self) -> int:
        """Fewest rows that a pass computes; a smaller one gets spare rows."""

    @property
    def reads_per_row(self) -> bool:
        """True if each row of a pass reads its session's cached tokens anew; else its rows share the reading."""

    @property
    def computed(self) -> float | None:
        """Rows that take as long as the last pass did: spare ones and changes of size included. None: those of its
        chunks."""

    @property
    def has_trees(self) -> bool:
        """True if chunks may end in trees; else every draft is a chain."""

    @property
    def has_finite_keys(self) -> bool:
        """True if the KV cache remains finite where the model overflows."""

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Appends chunks to their sessions; returns logits [sum(num_logits), vocab_size] in float32, in chunk order.

        Columns beyond the tokenizer are -inf, and so is the mask's. The keys and values of masks are dropped. Raises
        PoolExhausted (too few pages) or PromptError (a session would outgrow the context, or an id is not the
        tokenizer's), and changes nothing then.
        """

    def keep(self, paths: Sequence[TreePath]) -> None:
        """Retains a path through each tree of an earlier `forward`, and drops the other nodes."""

    def clear(self, keys: Sequence[Hashable]) -> None:
        """Overwrites the KV cache of sessions with logits that are not numbers."""


def with_masks(chunk: Chunk, pool: PagePool, checkpoint: Checkpoint) -> Chunk:
    """Returns the chunk with its masks among its tokens.

    Raises PromptError if the session would outgrow the context, or if an id is not the tokenizer's; ValueError if the
    model has no mask.
    """
    length = pool.length(chunk.key) + len(chunk.tokens) + chunk.num_masks
    limit = checkpoint.context_len
    if length > limit:
        raise PromptError(f"{length} tokens do not fit into this model's context of {limit}; use a shorter prompt")
    check_ids(checkpoint.tokenizer, chunk.tokens, checkpoint.num_tokens)
    if not chunk.num_masks:
        return chunk
    if checkpoint.mask_id is None:
        raise ValueError("masks need a checkpoint with a mask token")
    return replace(chunk, tokens=[*chunk.tokens, *[checkpoint.mask_id] * chunk.num_masks])


def masked(logits: Tensor, checkpoint: Checkpoint) -> Tensor:
    """Sets columns of logits [rows, vocab_size] to -inf, in place: those beyond the tokenizer, and the mask's."""
    if checkpoint.num_tokens < logits.shape[1]:
        logits[:, checkpoint.num_tokens :] = float("-inf")
    if checkpoint.mask_id is not None:
        logits[:, checkpoint.mask_id] = float("-inf")
    return logits


def mark(device: torch.device) -> torch.cuda.Event | None:
    """Marks this place in a GPU's work, to time what lies between two marks; None on a CPU, which has no work ahead."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event
