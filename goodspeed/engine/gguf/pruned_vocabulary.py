"""Reads which tokens a draft model keeps: it has rows for the tokens that its target says most, and drafts no others.

The file has the target's whole tokenizer, and two arrays beside it. The input of a token that is not kept is the row of
a similar one. The idea of the narrow output is FR-Spec's (arXiv 2502.14856).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goodspeed.engine.gguf.file import KEPT, MASK, NEAREST, GgufFile, damaged


@dataclass(frozen=True)
class KeptTokens:
    """The kept tokens of a model, row by row."""

    tokens: NDArray[np.int64]  # [num_rows] ascending ids
    nearest: NDArray[np.int64]  # [vocab_size] row that is the input of each id; a kept one's is its own

    @classmethod
    def of(cls, file: GgufFile) -> "KeptTokens | None":
        """Returns None for a file that keeps all tokens; CheckpointError if arrays contradict each other or rows."""
        if KEPT not in file.fields and NEAREST not in file.fields:
            return None
        try:
            tokens, nearest = (np.array(file.items(key, int), np.int64) for key in (KEPT, NEAREST))
        except OverflowError as error:
            raise damaged(file.name, f"{KEPT} or {NEAREST} has a number beyond {np.iinfo(np.int64).max}") from error
        if not len(tokens) or (np.diff(tokens) <= 0).any() or tokens[0] < 0 or tokens[-1] >= len(nearest):
            raise damaged(file.name, f"{KEPT} is no ascending list of ids below {len(nearest)}")
        if len(tokens) != file.num_rows:
            raise damaged(file.name, f"{KEPT} has {len(tokens)} tokens, but the model {file.num_rows} rows")
        if nearest.min() < 0 or nearest.max() >= len(tokens) or (nearest[tokens] != np.arange(len(tokens))).any():
            raise damaged(file.name, f"{NEAREST} does not name rows of {KEPT}, or a kept token not its own")
        mask_id, _ = file.parallel
        if mask_id is not None and mask_id not in tokens:
            raise damaged(file.name, f"{KEPT} lacks the mask, {MASK}")
        return cls(tokens, nearest)

    @property
    def columns(self) -> NDArray[np.int64]:
        """Returns the logit of each id [vocab_size], by its row; num_rows for an id that is not kept."""
        found = np.full(len(self.nearest), len(self.tokens))
        found[self.tokens] = np.arange(len(self.tokens))
        return found
