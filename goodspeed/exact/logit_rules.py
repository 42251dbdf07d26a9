"""One function from logits and the text before them to logits: bias, penalties, masks and min_p.

Target, draft model and `generate` all call `process` on what comes out of a model, before temperature, top-k and top-p
(`sampling.py`). What a row becomes depends on its own logits, text and rules alone, so that under the match rule a text
stays a function of target, prompt, seed and rules, whatever was drafted and in whatever batch it is verified.

The definitions are vLLM's, and with them OpenAI's, in vLLM's order: `logit_bias` is added; then the repetition penalty
divides what is above 0 and multiplies what is not, of each token in prompt or output; then each token of the output
loses frequency_penalty for each time that it is there, and presence_penalty once; then masks hide what may not be
drawn; then min_p hides the tokens whose probability, after temperature, is below min_p times the largest probability.

Nothing here waits for the device.
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
from goodspeed.exact.counts import TextCounts


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
        """True if what they do depends on the text."""
        ...


@dataclass(frozen=True, slots=True)
class TextRows:
    """Consecutive rows of logits that go on from one text, and the rules for them."""

    paths: Sequence[Sequence[int]] = ((),)  # of each row the tokens that follow the text before it: what is drafted
    rules: Rules | None = None
    temperature: float = 1.0
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    banned: Sequence[Sequence[int]] | None = None  # ids that each row may not draw, unless a grammar has nothing else
    counts: TextCounts | None = None  # of prompt and output, which are not read then; None: they are counted here
    allowed: masks.Words | None = None  # what each row may draw by the text's grammar; None: it has none

    @property
    def is_changed(self) -> bool:
        has_bans = self.banned is not None and any(self.banned)
        return has_bans or self.rules is not None or self.allowed is not None


def process(logits: Tensor, texts: Sequence[TextRows], *, num_tokens: int | None = None) -> Tensor:
    """Returns logits [num_rows, num_tokens] as the rules of their texts have them, in fp32 at least (fp64 for fp64).

    logits [num_rows, vocab] stay as they are, and are what comes back where no rule changes any row. Columns from
    num_tokens on are padding of the model, and cut off. A row that may draw nothing has nothing but -inf. Ids beyond
    the vocabulary are ignored. A logit of inf or NaN that a grammar hides becomes NaN.
    """
    if not any(text.is_changed for text in texts):
        return logits
    dtype = torch.promote_types(logits.dtype, torch.float32)
    changed = logits[:, :num_tokens].to(dtype, copy=True, memory_format=torch.contiguous_format)
    _add(changed, texts)
    masks.hide(changed, [masks.Limits(len(text.paths), text.banned, text.allowed) for text in texts])
    _cut(changed, texts)
    return changed


# -- bias and penalties ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Added:
    """The effect of bias and penalties on some logits: (logit + bias), by factor, - lost."""

    index: NDArray[np.int64]  # [num], a token, or row * width + token
    numbers: NDArray[np.float64]  # [3, num]: bias, factor, lost

    @staticmethod
    def joined(parts: Sequence["_Added"]) -> "_Added":
        return _Added(
            np.concatenate([part.index for part in parts]), np.concatenate([part.numbers for part in parts], 1)
        )

    def to(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The index and the numbers beside these logits, in their precision."""
        index, numbers = torch.from_numpy(self.index), torch.from_numpy(self.numbers).to(logits.dtype)
        return index.to(logits.device, non_blocking=True), numbers.to(logits.device, non_blocking=True)


def _add(logits: Tensor, texts: Sequence[TextRows]) -> None:
    """Adds bias and penalties to contiguous logits [num_rows, width].

    What a text has in common is added to all of its rows; where a row's drafted tokens count, too, its logits are
    replaced by what these come to.
    """
    width = logits.shape[-1]
    rows, whole, drafted = list[slice](), list[_Added](), list[_Added]()
    first_row = 0
    for text in texts:
        num_rows = len(text.paths)
        if text.rules is not None:
            counts = _counts(text)
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
    """Returns values [..., num] with numbers [3, num] added: bias, factor, lost."""
    bias, factor, lost = numbers.unbind()
    values = values + bias
    return torch.where(values > 0, values / factor, values * factor) - lost


def _counts(text: TextRows) -> TextCounts:
    if text.rules is None or not text.rules.reads_text:
        return TextCounts()
    return text.counts if text.counts is not None else TextCounts.of(text.prompt, text.output)


def _of_text(rules: Rules, counts: TextCounts, width: int) -> _Added:
    """Returns the effect of bias and the text before a draft on tokens below width."""
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
    """Returns the effect of the text and each row's path on the tokens of that path."""
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


# -- min_p -------------------------------------------------------------------------------------------------------------


def _cut(logits: Tensor, texts: Sequence[TextRows]) -> None:
    """Hides what min_p cuts: p < min_p * largest p after temperature T is logit < largest logit + T * ln(min_p)."""
    if all(text.rules is None for text in texts):
        return
    depths = [depth for text in texts for depth in [_depth(text)] * len(text.paths)]
    for rows in masks.runs([depth > -inf for depth in depths]):
        depth = torch.tensor(depths[rows], dtype=logits.dtype).to(logits.device, non_blocking=True)
        some = logits[rows]
        some.masked_fill_(some < some.amax(-1, keepdim=True) + depth.unsqueeze(-1), -torch.inf)


def _depth(text: TextRows) -> float:
    """Returns min_p as a distance from the largest logit; -inf where nothing is cut. Temperature 0 cuts nothing."""
    if text.rules is None or not text.rules.min_p or not text.temperature:
        return -inf
    return text.temperature * log(text.rules.min_p)
