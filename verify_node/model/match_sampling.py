"""The match rule on a round's logits: samples the target's tokens from each session's rows, and compares drafts.

Needs torch and numpy only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan
from operator import eq
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from goodspeed.errors import NOT_NUMBERS
from goodspeed.exact import trees
from goodspeed.exact.counts import TextCounts
from goodspeed.exact.logit_rules import Rules, TextRows, process
from goodspeed.exact.masks import Words
from goodspeed.exact.rejection import match, match_tree
from goodspeed.exact.sampling import Sampling, SamplingBatch, choose, rows_at_once


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One session's part of a round: the target samples at its base and after each of its drafted tokens."""

    first_row: int  # row of logits that decides the token at `base_len`; the other rows follow
    base_len: int
    drafted: Sequence[int]
    sampling: Sampling
    parents: Sequence[int] | None = None  # index of each drafted token's parent, or -1; None: a chain
    rules: Rules | None = None
    counts: TextCounts | None = None  # of the committed text with its prompt, if its rules read the text
    allowed: Words | None = None  # tokens that its constraint allows each row [num_drafted + 1, num_words]
    banned_at: Callable[[int], Sequence[int]] | None = None  # banned ids at a position of the text
    has_finite_keys: bool = False  # in the KV cache, even where logits are not finite


class MatchDecision(NamedTuple):
    """The match rule's decision on one session's draft."""

    target_tokens: list[int]  # the target's own draws: after the base, and after each drafted token
    agrees: list[bool]  # for each drafted token: True if the target drew it too
    accepted: Sequence[int]  # places of the accepted tokens, in order
    agreement: int  # drafted tokens that the target drew too; in a tree, only first choices count
    failure: str = ""  # why no token can be drawn

    @property
    def num_accepted(self) -> int:
        return len(self.accepted)

    @property
    def next_token(self) -> int:
        return self.target_tokens[self.accepted[-1] + 1 if self.accepted else 0]


def decide_match(entries: Sequence[Verified], logits: Tensor, num_tokens: int) -> list[MatchDecision]:
    """Samples the target's token at every position on the device, then compares with the drafts on the host.

    logits [num_rows, vocab]: only the first num_tokens columns can be drawn; one transfer from the device.
    """
    rows, positions, counts = logit_rows(entries)
    batch = SamplingBatch.of([entry.sampling for entry in entries], counts, device=logits.device)
    wanted = logits if len(rows) == len(logits) else logits[int64_tensor(rows, logits)]
    drawn: list[tuple[Tensor, Tensor]] = []
    for some, texts in groups(text_rows(entries), rows_at_once(wanted)):
        own = wanted[some]
        changed = process(own, texts, num_tokens=num_tokens)
        chosen = choose(changed, batch[some], int64_tensor(positions[some], logits), num_tokens=num_tokens)
        drawn.append((chosen, largest_logits(own, changed)))
    tokens, tops = _on_host(drawn)
    decided: list[MatchDecision] = []
    first = 0
    for entry, count in zip(entries, counts, strict=True):
        decided.append(_decide(entry, tokens[first : first + count], tops[first : first + count]))
        first += count
    return decided


def _on_host(drawn: Sequence[tuple[Tensor, Tensor]]) -> tuple[list[int], list[float]]:
    """Returns the tokens of all groups, and their rows' largest logits, after one transfer from the device."""
    if drawn[0][0].device.type == "cpu":
        lists = [(tokens.tolist(), tops.tolist()) for tokens, tops in drawn]
        return [one for ids, _ in lists for one in ids], [one for _, tops in lists for one in tops]
    found, tops = torch.cat([torch.stack([ids.double(), tops]) for ids, tops in drawn], 1).tolist()  # exact in fp64
    return [int(one) for one in found], tops


def groups(texts: Sequence[TextRows], num_rows: int) -> Iterator[tuple[slice, Sequence[TextRows]]]:
    """Yields texts in groups of num_rows rows or a single text, and their rows: rules copy a group that they change."""
    if not any(text.is_changed for text in texts):
        yield slice(None), texts
        return
    group, first = list[TextRows](), 0
    size = 0
    for text in texts:
        if group and size + len(text.paths) > num_rows:
            yield slice(first, first + size), group
            group, first, size = [], first + size, 0
        group.append(text)
        size += len(text.paths)
    yield slice(first, first + size), group


def _decide(entry: Verified, target_tokens: list[int], tops: list[float]) -> MatchDecision:
    drafted, parents = entry.drafted, entry.parents
    if parents is None:
        num_accepted, agreement = match(target_tokens, drafted)
        failed = failure(entry, tops, range(num_accepted + 1))
        return MatchDecision(
            target_tokens, list(map(eq, target_tokens, drafted)), range(num_accepted), agreement, failed
        )
    path, _ = match_tree(target_tokens, drafted, parents)
    agrees = [target_tokens[parent + 1] == token for parent, token in zip(parents, drafted, strict=True)]
    agreement = sum(agrees[node] for node in trees.first_choices(parents))
    failed = failure(entry, tops, [0, *(node + 1 for node in path)])
    return MatchDecision(target_tokens, agrees, path, agreement, failed)


def logit_rows(entries: Sequence[Verified]) -> tuple[list[int], list[int], list[int]]:
    """Returns the rows of logits to draw from, their text positions, and each session's number of rows."""
    rows: list[int] = []
    positions: list[int] = []
    counts: list[int] = []
    for entry in entries:
        count = len(entry.drafted) + 1
        rows += range(entry.first_row, entry.first_row + count)
        positions += _positions(entry)
        counts.append(count)
    return rows, positions, counts


def _positions(entry: Verified) -> Sequence[int]:
    """Text positions of the tokens drawn after the base, and after each drafted token."""
    if entry.parents is None:
        return range(entry.base_len, entry.base_len + len(entry.drafted) + 1)
    return [entry.base_len, *(entry.base_len + depth for depth in trees.depths(entry.parents))]


def text_rows(entries: Sequence[Verified]) -> list[TextRows]:
    """Returns the rows of `logit_rows` as input for the logit rules."""
    return [_text_rows(entry) for entry in entries]


def _text_rows(entry: Verified) -> TextRows:
    banned = None if entry.banned_at is None else list(map(entry.banned_at, _positions(entry)))
    if entry.rules is None:
        return TextRows([()] * (len(entry.drafted) + 1), banned=banned, allowed=entry.allowed)
    return TextRows(
        paths=[(), *trees.paths(entry.drafted, entry.parents)],
        rules=entry.rules,
        temperature=entry.sampling.temperature,
        banned=banned,
        counts=entry.counts,
        allowed=entry.allowed,
    )


def largest_logits(wanted: Tensor, changed: Tensor) -> Tensor:
    """Returns the largest logit of each row to draw from [num_rows], fp64.

    NaN where the model's own largest logit is not finite, -inf where rules allow no token.
    """
    if wanted.device.type == "cpu" and wanted.dtype == torch.float32:  # numpy takes a third of the time
        found = wanted.numpy().max(-1).astype(np.float64)
        found[~np.isfinite(found)] = np.nan
        tops = torch.from_numpy(found)
    else:
        tops = wanted.amax(-1).double()
        tops = torch.where(tops.isfinite(), tops, torch.nan)
    return tops if changed is wanted else torch.where(tops.isfinite(), changed.amax(-1).double(), tops)


def failure(entry: Verified, tops: Sequence[float], reached: Sequence[int]) -> str:
    """Returns why a session with these `largest_logits` cannot continue; empty if it can.

    reached: the rows that decide; other rows follow rejected tokens. Where these are not finite, only keys that are not
    finite either, and remain in the KV cache, prevent a session from continuing.
    """
    if all(map(isfinite, tops)):
        return ""
    deciding = [tops[row] for row in reached]
    if any(isnan(top) or top == inf for top in (deciding if entry.has_finite_keys else tops)):
        return NOT_NUMBERS
    return "its rules leave no token to draw" if -inf in deciding else ""


def int64_tensor(values: Sequence[int] | Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """Returns an int64 tensor on the device of `like`, without waiting for the transfer."""
    return torch.from_numpy(np.array(values, np.int64)).to(like.device, non_blocking=True)
