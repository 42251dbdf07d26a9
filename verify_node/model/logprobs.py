"""The target's raw logprobs of a round's output and prompt tokens, for the sessions that request them."""

from collections.abc import Sequence
from math import isnan

import torch
from msgspec.structs import replace
from torch import Tensor

from goodspeed.errors import NOT_NUMBERS
from goodspeed.wire.fields import MIN_LOGPROB
from goodspeed.wire.messages import TokenLogprobs
from verify_node.model.entries import VerifiedEntry
from verify_node.scheduler.round import Entry, Outcome

MAX_ROWS = 256
"""Rows processed at once: with a vocabulary of 152,000 their copies take 300 MB."""


def with_logprobs(outcomes: Sequence[Outcome], verified: Sequence[VerifiedEntry], logits: Tensor) -> list[Outcome]:
    """Adds logprobs to the outcomes of the entries that request them; logits [num_rows, vocab].

    One transfer from the device. Reads only the rows of output tokens.
    """
    asked = {
        one.entry.session_id: (one.first_row, one.entry.opened.num_logprobs)
        for one in verified
        if one.entry.opened.num_logprobs is not None
    }
    wanted = [outcome for outcome in outcomes if outcome.session_id in asked and outcome.tokens]
    if not wanted:
        return list(outcomes)
    rows = [asked[outcome.session_id][0] + offset for outcome in wanted for offset in outcome.offsets]
    tokens = [token for outcome in wanted for token in outcome.tokens]
    num_top = min(max(asked[outcome.session_id][1] for outcome in wanted), logits.shape[-1])
    table = iter(_look_up(logits, rows, tokens, num_top))
    found = {
        outcome.session_id: tuple(
            _to_logprobs(next(table), num_top, asked[outcome.session_id][1]) for _ in outcome.tokens
        )
        for outcome in wanted
    }
    return [replace(outcome, logprobs=found.get(outcome.session_id, ())) for outcome in outcomes]


def with_prompts(outcomes: Sequence[Outcome], entries: Sequence[Entry], logits: Tensor) -> list[Outcome]:
    """Adds logprobs of prefilled prompt tokens to the outcomes; creates an outcome for a session that only prefilled.

    logits [num_rows, vocab]: of all entries, each one's prompt rows first. One transfer from the device for each.
    """
    by_session = {outcome.session_id: outcome for outcome in outcomes}
    first_row = 0
    for entry in entries:
        if (wanted := entry.prompt_rows) is not None:
            num_top = min(wanted.num_top, logits.shape[-1])
            table = _look_up(logits, range(first_row, first_row + len(wanted.tokens)), wanted.tokens, num_top)
            before = by_session.get(entry.session_id, Outcome(entry.session_id, (), 0, 0.0))
            if any(isnan(row[0]) for row in table):
                after = replace(before, tokens=(), logprobs=(), num_accepted=0, failed=NOT_NUMBERS)
            else:
                after = replace(before, prompt_logprobs=tuple(_to_logprobs(row, num_top, num_top) for row in table))
            by_session[entry.session_id] = after
        first_row += entry.num_rows
    return list(by_session.values())


def _look_up(logits: Tensor, rows: Sequence[int], tokens: Sequence[int], num_top: int) -> list[list[float]]:
    """Returns for each row: its token's logprob, the likeliest tokens' logprobs, then their ids (exact in fp64)."""
    cells = torch.tensor([list(rows), list(tokens)]).to(logits.device, non_blocking=True)  # [2, num_wanted]
    parts: list[Tensor] = []
    for some_rows, some_tokens in zip(*(torch.split(each, MAX_ROWS) for each in cells), strict=True):
        logprobs = logits[some_rows].log_softmax(-1, dtype=torch.float32).clamp(min=MIN_LOGPROB)
        top = logprobs.topk(num_top)
        own = logprobs.gather(-1, some_tokens.unsqueeze(-1))
        parts.append(torch.cat([own.double(), top.values.double(), top.indices.double()], -1))
    table: list[list[float]] = torch.cat(parts).tolist()
    return table


def _to_logprobs(row: Sequence[float], num_top: int, num_wanted: int) -> TokenLogprobs:
    """Converts a row of the table to `TokenLogprobs`, with the number of alternatives that the session requests."""
    top, ids = row[1 : 1 + num_top], row[1 + num_top :]
    return TokenLogprobs(row[0], tuple(map(int, ids[:num_wanted])), tuple(top[:num_wanted]))
