"""The match rule on a round's logits: samples the target's tokens from each session's rows, and compares drafts."""

from collections.abc import Iterator, Sequence
from math import inf, isfinite, isnan
from operator import eq

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from goodspeed.drafting.proposing import banned_at
from goodspeed.errors import NOT_NUMBERS
from goodspeed.exact import trees
from goodspeed.exact.logits.rules import TextRows, process
from goodspeed.exact.rejection import match, match_tree
from goodspeed.exact.sampling import SamplingBatch, choose, rows_at_once
from verify_node.model.entries import VerifiedEntry
from verify_node.scheduler.round import Decisions, Outcome


def decide_match_round(
    verified: Sequence[VerifiedEntry], logits: Tensor, num_tokens: int, *, records: bool = False
) -> list[Outcome]:
    """Returns the outcomes of a round's entries under the match rule; one transfer from the device.

    Samples the target's token at every position on the device, then compares with the drafts on the host.
    logits [num_rows, vocab]: only the first num_tokens columns can be drawn. records: outcomes contain the decision at
    each position.
    """
    rows, positions, counts = logit_rows(verified)
    batch = SamplingBatch.of([one.entry.opened.sampling for one in verified], counts, device=logits.device)
    wanted = logits if len(rows) == len(logits) else logits[int64_tensor(rows, logits)]
    drawn: list[tuple[Tensor, Tensor]] = []
    for some, texts in groups(verified, rows_at_once(wanted)):
        own = wanted[some]
        changed = process(own, texts, num_tokens=num_tokens)
        samplings = batch[some]
        chosen = choose(changed, samplings, int64_tensor(positions[some], logits), num_tokens=num_tokens)
        if changed is own and samplings.all_greedy:
            own = changed = own.gather(-1, chosen.unsqueeze(-1))  # the largest, or one that is no number
        drawn.append((chosen, largest_logits(own, changed)))
    tokens, tops = _on_host(drawn)
    outcomes: list[Outcome] = []
    first = 0
    for one, count in zip(verified, counts, strict=True):
        last = first + count
        outcomes.append(_decide(one, tokens[first:last], tops[first:last], records=records))
        first = last
    return outcomes


def _on_host(drawn: Sequence[tuple[Tensor, Tensor]]) -> tuple[list[int], list[float]]:
    """Returns the tokens of all groups, and their rows' largest logits, after one transfer from the device."""
    if drawn[0][0].device.type == "cpu":
        lists = [(tokens.tolist(), tops.tolist()) for tokens, tops in drawn]
        return [one for ids, _ in lists for one in ids], [one for _, tops in lists for one in tops]
    found, tops = torch.cat([torch.stack([ids.double(), tops]) for ids, tops in drawn], 1).tolist()  # exact in fp64
    return [int(one) for one in found], tops


def _decide(one: VerifiedEntry, target_tokens: list[int], tops: list[float], *, records: bool) -> Outcome:
    """Compares a draft with the target's own draws: after the base, and after each drafted token."""
    drafted, parents = one.drafted, one.entry.parents
    agreed: Sequence[bool] = ()  # of the first choices
    accepted: Sequence[int]
    if parents is None:
        num_accepted, agreement = match(target_tokens, drafted)
        accepted = range(num_accepted)
        if records:
            agreed = list(map(eq, target_tokens, drafted))
    else:
        accepted, _ = match_tree(target_tokens, drafted, parents)
        agreed = [target_tokens[parents[node] + 1] == drafted[node] for node in trees.first_choices(parents)]
        agreement = sum(agreed)
    failed = failure(one, tops, [0, *(place + 1 for place in accepted)])
    outcome = one.outcome(accepted, target_tokens[accepted[-1] + 1 if accepted else 0], agreement, failed)
    if parents is not None:
        outcome = replace(outcome, path=() if failed else tuple(accepted))
    return replace(outcome, decisions=Decisions(tuple(agreed))) if records else outcome


def logit_rows(verified: Sequence[VerifiedEntry]) -> tuple[list[int], list[int], list[int]]:
    """Returns the rows of logits to draw from, their text positions, and each session's number of rows."""
    rows: list[int] = []
    positions: list[int] = []
    counts: list[int] = []
    for one in verified:
        count = len(one.drafted) + 1
        rows += range(one.first_row, one.first_row + count)
        positions += _positions(one)
        counts.append(count)
    return rows, positions, counts


def _positions(one: VerifiedEntry) -> Sequence[int]:
    """Text positions of the tokens drawn after the base, and after each drafted token."""
    base_len, parents = one.entry.base_len, one.entry.parents
    if parents is None:
        return range(base_len, base_len + len(one.drafted) + 1)
    return [base_len, *(base_len + depth for depth in trees.depths(parents))]


def groups(verified: Sequence[VerifiedEntry], num_rows: int) -> Iterator[tuple[slice, Sequence[TextRows]]]:
    """Yields the entries' texts in groups of num_rows rows or a single text, and their rows among all of `logit_rows`:
    rules copy a group that they change."""
    texts = list(map(_text_rows, verified))
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


def _text_rows(one: VerifiedEntry) -> TextRows:
    entry, opened = one.entry, one.entry.opened
    banned = [banned_at(opened, at) for at in _positions(one)] if banned_at(opened, entry.base_len) else None
    if opened.logit_rules is None:
        return TextRows([()] * (len(one.drafted) + 1), banned=banned, allowed=one.allowed)
    return TextRows(
        paths=[(), *trees.paths(one.drafted, entry.parents)],
        rules=opened.logit_rules,
        temperature=opened.sampling.temperature,
        banned=banned,
        counts=one.counts,
        allowed=one.allowed,
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


def failure(one: VerifiedEntry, tops: Sequence[float], reached: Sequence[int]) -> str:
    """Returns why a session with these `largest_logits` cannot continue; empty if it can.

    reached: the rows that decide; other rows follow rejected tokens. Where these are not finite, only keys that are not
    finite either, and remain in the KV cache, prevent a session from continuing.
    """
    if all(map(isfinite, tops)):
        return ""
    deciding = [tops[row] for row in reached]
    if any(isnan(top) or top == inf for top in (deciding if one.has_finite_keys else tops)):
        return NOT_NUMBERS
    return "its rules leave no token to draw" if -inf in deciding else ""


def int64_tensor(values: Sequence[int] | Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """Returns an int64 tensor on the device of `like`, without waiting for the transfer."""
    return torch.from_numpy(np.array(values, np.int64)).to(like.device, non_blocking=True)
