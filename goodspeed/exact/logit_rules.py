"""One function from logits and the text before them to logits: bias, penalties, masks and min_p.

Target, draft model and `generate` all call `process` on what comes out of a model, before temperature, top-k and top-p
(`sampling.py`). What a row becomes depends on its own logits, text and rules alone, so that under the match rule a text
stays a function of target, prompt, seed and rules, whatever was drafted and in whatever batch it is verified.

The definitions are vLLM's, and with them OpenAI's, in vLLM's order: `logit_bias` is added; then the repetition penalty
divides what is above 0 and multiplies what is not, of each token in prompt or output; then each token of the output
loses frequency_penalty for each time that it is there, and presence_penalty once; then masks hide what may not be
drawn; then min_p hides what is, after temperature, less likely than that part of the likeliest token.

Nothing here waits for the device. Knows nothing about seeds, noise, sessions or grammars.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goodspeed.exact import masks


class Bias(Protocol):
    """A number that is added to one token's logit."""

    @property
    def token(self) -> int: ...

    @property
    def bias(self) -> float: ...


class Rules(Protocol):
    """The rules of a text; the wire's `LogitRules` has this interface."""

    @property
    def presence_penalty(self) -> float: ...

    @property
    def frequency_penalty(self) -> float: ...

    @property
    def repetition_penalty(self) -> float: ...

    @property
    def min_p(self) -> float: ...

    @property
    def logit_bias(self) -> Sequence[Bias]: ...


@dataclass(frozen=True, slots=True)
class TextRows:
    """Consecutive rows of logits that go on from one text, and the rules for them."""

    paths: Sequence[Sequence[int]] = ((),)  # of each row the tokens that follow the text before it: what is drafted
    rules: Rules | None = None
    temperature: float = 1.0
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    banned: Sequence[Sequence[int]] | None = None  # ids that each row may not draw, unless a grammar has nothing else

    @property
    def is_changed(self) -> bool:
        return self.rules is not None or (self.banned is not None and any(self.banned))


def process(
    logits: Tensor, texts: Sequence[TextRows], allowed: Tensor | None = None, *, num_tokens: int | None = None
) -> Tensor:
    """Returns logits [num_rows, num_tokens] as the rules of their texts have them, in fp32 at least (fp64 for fp64).

    logits [num_rows, vocab] stay as they are, and are what comes back where no rule changes any row. Columns from
    num_tokens on are padding of the model, and cut off. allowed [num_rows, num_words] int32, on the CPU: bit t % 32 of
    word t // 32 says whether a row may draw token t; None: every row may draw any. A row that may draw nothing has
    nothing but -inf. Ids beyond the vocabulary are ignored.
    """
    if allowed is None and not any(text.is_changed for text in texts):
        return logits
    dtype = torch.promote_types(logits.dtype, torch.float32)
    changed = logits[:, :num_tokens].to(dtype, copy=True, memory_format=torch.contiguous_format)
    _add(changed, texts)
    masks.hide(changed, [banned for text in texts for banned in _banned(text)], allowed)
    _cut(changed, texts)
    return changed


def _banned(text: TextRows) -> Sequence[Sequence[int]]:
    return text.banned if text.banned is not None else [()] * len(text.paths)


# -- bias and penalties ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cells:
    """Those logits that bias or penalties change, all together: (logit + bias), by factor, - lost."""

    index: NDArray[np.int64]  # [num_cells], row * width + token
    numbers: NDArray[np.float64]  # [3, num_cells]: bias, factor, lost


def _add(logits: Tensor, texts: Sequence[TextRows]) -> None:
    """Adds bias and penalties to contiguous logits [num_rows, width]."""
    parts: list[_Cells] = []
    first_row = 0
    for text in texts:
        if text.rules is not None:
            parts += _cells(text, text.rules, first_row, logits.shape[-1])
        first_row += len(text.paths)
    if not parts:
        return
    index = torch.from_numpy(np.concatenate([part.index for part in parts])).to(logits.device, non_blocking=True)
    numbers = torch.from_numpy(np.concatenate([part.numbers for part in parts], 1)).to(logits.dtype)
    bias, factor, lost = numbers.to(logits.device, non_blocking=True)
    flat = logits.view(-1)
    values = flat[index] + bias
    flat[index] = torch.where(values > 0, values / factor, values * factor) - lost


def _cells(text: TextRows, rules: Rules, first_row: int, width: int) -> list[_Cells]:
    """The cells of one text's rows: every row has those of all tokens that any of them looks at. At most one part.

    The text is counted once; drafted tokens are counted for each row.
    """
    repeats, counts = rules.repetition_penalty != 1, rules.presence_penalty != 0 or rules.frequency_penalty != 0
    prompt, _ = _counted(text.prompt if repeats else (), width)
    output, num_in_output = _counted(text.output if repeats or counts else (), width)
    paths: Sequence[Sequence[int]] = text.paths if repeats or counts else [()] * len(text.paths)
    drafted = _ids([token for path in paths for token in path])
    biased = _ids([each.token for each in rules.logit_bias])
    tokens = np.unique(np.concatenate([prompt, output, drafted, biased]))
    tokens = tokens[tokens < width]
    num_tokens, num_rows = len(tokens), len(paths)
    if not num_tokens:
        return []
    rows = np.repeat(np.arange(num_rows), [len(path) for path in paths])
    places = rows * (num_tokens + 1) + np.searchsorted(tokens, drafted)  # ids beyond the vocabulary have the last place
    num_times = np.bincount(places, minlength=num_rows * (num_tokens + 1)).reshape(num_rows, -1)[:, :num_tokens]
    num_times[:, np.searchsorted(tokens, output)] += num_in_output  # [num_rows, num_tokens], in the output
    is_seen = num_times > 0
    is_seen[:, np.searchsorted(tokens, prompt)] = True
    bias = np.zeros(num_tokens + 1)
    np.add.at(bias, np.searchsorted(tokens, biased), [each.bias for each in rules.logit_bias])
    numbers = [
        np.broadcast_to(bias[:num_tokens], is_seen.shape),
        np.where(is_seen, rules.repetition_penalty, 1.0),
        rules.frequency_penalty * num_times + rules.presence_penalty * (num_times > 0),
    ]
    index = np.arange(first_row, first_row + num_rows)[:, None] * width + tokens
    return [_Cells(index.ravel(), np.stack(numbers).reshape(3, -1))]


def _ids(tokens: Sequence[int]) -> NDArray[np.int64]:
    return np.array(tokens, np.int64)


def _counted(text: Sequence[int], width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different tokens of a text that are below width, rising, and how often each is there."""
    tokens, counts = np.unique(_ids(text), return_counts=True)
    return tokens[tokens < width], counts[tokens < width]


# -- min_p -------------------------------------------------------------------------------------------------------------


def _cut(logits: Tensor, texts: Sequence[TextRows]) -> None:
    """Hides what min_p cuts: p < min_p * largest p after temperature T is logit < largest logit + T * ln(min_p)."""
    depths = [depth for text in texts for depth in [_depth(text)] * len(text.paths)]
    for rows in masks.runs([depth > -inf for depth in depths]):
        depth = torch.tensor(depths[rows], dtype=logits.dtype).to(logits.device, non_blocking=True)
        some = logits[rows]
        some.masked_fill_(some < some.amax(-1, keepdim=True) + depth.unsqueeze(-1), -torch.inf)


def _depth(text: TextRows) -> float:
    """How far below the largest one a logit may lie; -inf where nothing is cut. Temperature 0 takes the largest."""
    if text.rules is None or not text.rules.min_p or not text.temperature:
        return -inf
    return text.temperature * log(text.rules.min_p)
