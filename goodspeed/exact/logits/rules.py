"""Logit processing that depends on the text: bias, penalties, masks and min_p, in one function `process`.

Target, draft model and `generate` all call `process` on a model's logits, before temperature, top-k and top-p
(`sampling.py`). A row's result depends only on its own logits, text and rules. So under the match rule a text is a
function of target, prompt, seed and rules, independent of drafts and batches.

The definitions are vLLM's (and OpenAI's), in vLLM's order:

1. `logit_bias` is added.
2. The repetition penalty divides positive logits, and multiplies others, of each token in prompt or output.
3. Each token of the output loses frequency_penalty per occurrence, and presence_penalty once.
4. Masks hide tokens that may not be drawn.
5. min_p hides tokens whose probability, after temperature, is below min_p times the largest probability.

No function waits for the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goodspeed.exact.logits import masks
from goodspeed.exact.logits.token_counts import TextCounts


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

    @property
    def reads_text(self) -> bool:
        """True if the effect of the rules depends on the text."""
        ...


@dataclass(frozen=True, slots=True)
class TextRows:
    """Consecutive rows of logits that continue one text, and their rules."""

    paths: Sequence[Sequence[int]] = ((),)  # per row, the drafted tokens between the text and the row
    rules: Rules | None = None
    temperature: float = 1.0
    banned: Sequence[Sequence[int]] | None = None  # per row, ids not to draw unless the grammar allows no others
    counts: TextCounts | None = None  # of the text's tokens, if the rules read the text
    allowed: masks.Words | None = None  # per row, the tokens that the grammar allows; None: no grammar

    @property
    def is_changed(self) -> bool:
        has_bans = self.banned is not None and any(self.banned)
        return has_bans or self.rules is not None or self.allowed is not None


def process(logits: Tensor, texts: Sequence[TextRows], *, num_tokens: int | None = None) -> Tensor:
    """Applies the texts' rules to logits [num_rows, vocab]; returns [num_rows, num_tokens], in fp32 (fp64 for fp64).

    The input is not modified; it is returned itself, with all columns, if no row has a rule. num_tokens: columns from
    here on are the model's padding, and are dropped. A row without a permitted token is all -inf. Ids beyond the
    vocabulary are ignored. A logit of inf or NaN that a grammar hides becomes NaN.
    """
    if not any(text.is_changed for text in texts):
        return logits
    dtype = torch.promote_types(logits.dtype, torch.float32)
    changed = logits[:, :num_tokens].to(dtype, copy=True, memory_format=torch.contiguous_format)
    _add(changed, texts)
    masks.hide(changed, [masks.Limits(len(text.paths), text.banned, text.allowed) for text in texts])
    _cut(changed, texts)
    return changed


@dataclass(frozen=True, slots=True)
class _Added:
    """The effect of bias and penalties on some logits: scale(logit + bias, factor) - lost, as in `_added`."""

    index: NDArray[np.int64]  # [num], token, or row * width + token
    numbers: NDArray[np.float64]  # [3, num]: bias, factor, lost

    @staticmethod
    def joined(parts: Sequence["_Added"]) -> "_Added":
        return _Added(
            np.concatenate([part.index for part in parts]), np.concatenate([part.numbers for part in parts], 1)
        )

    def to(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Returns index and numbers on the device of the logits; numbers in the dtype of the logits."""
        index, numbers = torch.from_numpy(self.index), torch.from_numpy(self.numbers).to(logits.dtype)
        return index.to(logits.device, non_blocking=True), numbers.to(logits.device, non_blocking=True)


def _add(logits: Tensor, texts: Sequence[TextRows]) -> None:
    """Adds bias and penalties to contiguous logits [num_rows, width], in place.

    The effect of a text applies to all its rows. At tokens drafted before a row, the row's logits are then replaced by
    values that count the drafted tokens, too.
    """
    width = logits.shape[-1]
    rows, whole, drafted = list[slice](), list[_Added](), list[_Added]()
    first_row = 0
    for text in texts:
        num_rows = len(text.paths)
        if text.rules is not None:
            counts = text.counts or TextCounts()
            rows.append(slice(first_row, first_row + num_rows))
            whole.append(_of_text(text.rules, counts, width))
            drafted.append(_of_paths(text.rules, counts, text.paths, first_row, width))
        first_row += num_rows
    if not rows:
        return
    flat = logits.view(-1)
    cells, numbers_of_cells = _Added.joined(drafted).to(logits)
    values_of_cells = _added(flat[cells], numbers_of_cells)
    tokens, numbers = _Added.joined(whole).to(logits)
    sizes = [len(each.index) for each in whole]
    for some, at, by in zip(rows, tokens.split_with_sizes(sizes), numbers.split_with_sizes(sizes, 1), strict=True):
        if len(at):
            logits[some].index_copy_(1, at, _added(logits[some].index_select(1, at), by))
    flat[cells] = values_of_cells


def _added(values: Tensor, numbers: Tensor) -> Tensor:
    """Applies numbers [3, num] (bias, factor, lost) to values [..., num]."""
    bias, factor, lost = numbers.unbind()
    values = values + bias
    return torch.where(values > 0, values / factor, values * factor) - lost


def _of_text(rules: Rules, counts: TextCounts, width: int) -> _Added:
    """Returns the effect of bias and of the text, without drafts, on tokens below width."""
    biases = _biases(rules)
    others = [token for token, place in zip(biases, counts.places(list(biases)).tolist(), strict=True) if place < 0]
    tokens = np.concatenate([counts.tokens, np.array(others, np.int64)])
    in_output = np.pad(counts.in_output, (0, len(others)))
    is_seen = np.pad(counts.in_prompt, (0, len(others))) + in_output > 0
    bias = np.zeros(len(tokens))
    places = counts.places(list(biases))
    places[places < 0] = np.arange(len(counts.tokens), len(tokens))
    bias[places] = list(biases.values())
    numbers = _numbers(rules, bias, is_seen, in_output)
    matters = (tokens < width) & ((numbers[0] != 0) | (numbers[1] != 1) | (numbers[2] != 0))
    return _Added(tokens[matters], numbers[:, matters])


def _of_paths(rules: Rules, counts: TextCounts, paths: Sequence[Sequence[int]], first_row: int, width: int) -> _Added:
    """Returns the effect of bias, text and path on the tokens in each row's path."""
    drafted = np.array([token for path in paths for token in path] if rules.reads_text else [], np.int64)
    if not len(drafted):
        return _Added(np.zeros(0, np.int64), np.zeros((3, 0)))
    rows = np.repeat(np.arange(first_row, first_row + len(paths)), [len(path) for path in paths])
    index, num_times = np.unique((rows * width + drafted)[drafted < width], return_counts=True)
    tokens, which = np.unique(index % width, return_inverse=True)
    places, biases = counts.places(tokens.tolist()), _biases(rules)
    known = np.zeros(len(tokens), np.int64)
    known[places >= 0] = counts.in_output[places[places >= 0]]
    bias = np.array([biases.get(token, 0.0) for token in tokens.tolist()])
    return _Added(index, _numbers(rules, bias[which], num_times > 0, known[which] + num_times))


def _biases(rules: Rules) -> dict[int, float]:
    found: dict[int, float] = {}
    for each in rules.logit_bias:
        found[each.token] = found.get(each.token, 0.0) + each.bias
    return found


def _numbers(
    rules: Rules, bias: NDArray[np.float64], is_seen: NDArray[np.bool_], in_output: NDArray[np.int64]
) -> NDArray[np.float64]:
    factor = np.where(is_seen, rules.repetition_penalty, 1.0)
    return np.stack([bias, factor, rules.frequency_penalty * in_output + rules.presence_penalty * (in_output > 0)])


def _cut(logits: Tensor, texts: Sequence[TextRows]) -> None:
    """Applies min_p in place: p < min_p * max p at temperature T means logit < max logit + T * ln(min_p)."""
    if all(text.rules is None for text in texts):
        return
    depths = [depth for text in texts for depth in [_depth(text)] * len(text.paths)]
    for rows in masks.runs([depth > -inf for depth in depths]):
        depth = torch.tensor(depths[rows], dtype=logits.dtype).to(logits.device, non_blocking=True)
        some = logits[rows]
        some.masked_fill_(some < some.amax(-1, keepdim=True) + depth.unsqueeze(-1), -torch.inf)


def _depth(text: TextRows) -> float:
    """Returns min_p as an offset from the largest logit; -inf: min_p is off, or the temperature is 0."""
    if text.rules is None or not text.rules.min_p or not text.temperature:
        return -inf
    return text.temperature * log(text.rules.min_p)
