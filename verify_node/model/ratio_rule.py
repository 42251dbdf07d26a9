"""The ratio rule on a round's logits: rejection sampling against the distributions sent with the drafts."""

from collections.abc import Iterator, Sequence

import torch
from msgspec.structs import replace
from torch import Tensor

from goodspeed.exact.logits.rules import process
from goodspeed.exact.rejection import decide_ratio, overlaps, ratios, verify_ratio
from goodspeed.exact.sampling import Role, SamplingBatch, rows_at_once, to_probs, uniform
from verify_node.model.entries import VerifiedEntry
from verify_node.model.evidence import log_gains, log_tilts
from verify_node.model.match_rule import failure, groups, int64_tensor, largest_logits, logit_rows
from verify_node.scheduler.round import Decisions, Outcome

MAX_ELEMENTS = 1 << 26
"""Most probabilities of a group of entries, padded to its longest draft: 256 MB, of the target and of the drafts each;
a single draft may have more."""


def decide_ratio_round(
    verified: Sequence[VerifiedEntry], logits: Tensor, num_tokens: int, number: int, *, records: bool
) -> list[Outcome]:
    """Returns the outcomes of a round's entries under the ratio rule; one transfer from the device per group.

    logits [num_rows, vocab]: only the first num_tokens columns can be drawn. number: of the round.
    records: outcomes contain the decision at each position.
    """
    decided = {
        outcome.session_id: outcome
        for group in _groups(verified, num_tokens)
        for outcome in _decide_group(group, logits, num_tokens, number, records=records)
    }
    return [decided[one.entry.session_id] for one in verified]


def _groups(verified: Sequence[VerifiedEntry], num_tokens: int) -> Iterator[list[VerifiedEntry]]:
    """Yields groups of entries with similar draft lengths: one long draft must not pad the rows of all sessions."""
    group = list[VerifiedEntry]()
    for one in sorted(verified, key=lambda one: len(one.drafted)):
        if group and (len(group) + 1) * (len(one.drafted) + 1) * num_tokens > MAX_ELEMENTS:
            yield group
            group = []
        group.append(one)
    yield group


def _decide_group(
    verified: Sequence[VerifiedEntry], logits: Tensor, num_tokens: int, number: int, *, records: bool
) -> list[Outcome]:
    target_probs, tops = target_probs_of(verified, logits, num_tokens)
    draft_tokens, num_drafted = _drafts(verified, logits)
    draft_probs = torch.zeros(*draft_tokens.shape, target_probs.shape[-1], device=logits.device)
    for row, one in enumerate(verified):
        if one.draft_probs is not None:
            draft_probs[row, : len(one.drafted)] = one.draft_probs.to(logits.device, non_blocking=True)
    accept_noise, final_noise = _noise(verified, draft_tokens, number)
    accepted, next_token = verify_ratio(target_probs, draft_tokens, draft_probs, num_drafted, accept_noise, final_noise)
    probabilities = ratios(target_probs, draft_tokens, draft_probs, num_drafted)
    shared = overlaps(target_probs, draft_probs, num_drafted)
    outcomes = _outcomes(verified, accepted, next_token, shared.sum(1), tops, log_gains(probabilities, shared))
    if not records:
        return outcomes
    decided = decide_ratio(target_probs, draft_tokens, draft_probs, num_drafted, accept_noise)
    return _with_decisions(outcomes, verified, decided, probabilities)


def target_probs_of(verified: Sequence[VerifiedEntry], logits: Tensor, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Returns target_probs [batch, max_len + 1, num_tokens] and their rows' `largest_logits` [batch, max_len + 1].

    Processes rows in groups, as the match rule does: logits that rules change are never copied as a whole.
    """
    rows, _, repeats = logit_rows(verified)
    batch = SamplingBatch.of([s.entry.opened.sampling for s in verified], repeats, device=logits.device)
    probs, tops = list[Tensor](), list[Tensor]()
    for some, texts in groups(verified, rows_at_once(logits)):
        own = logits[int64_tensor(rows[some], logits)]
        changed = process(own, texts, num_tokens=num_tokens)
        probs.append(to_probs(changed, batch[some], num_tokens=num_tokens))
        tops.append(largest_logits(own, changed))
    columns = int64_tensor(_columns(repeats), logits)
    return _joined(probs)[columns], _joined(tops)[columns]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _columns(repeats: Sequence[int]) -> list[list[int]]:
    """Returns the packed rows' numbers as a rectangle [batch, max(repeats)], padded with each entry's final row."""
    widest = max(repeats)
    columns: list[list[int]] = []
    first = 0
    for count in repeats:
        columns.append([first + min(column, count - 1) for column in range(widest)])
        first += count
    return columns


def _drafts(verified: Sequence[VerifiedEntry], like: Tensor) -> tuple[Tensor, Tensor]:
    """Returns draft_tokens [batch, max_len], padded with zeros, and num_drafted [batch]."""
    counts = [len(one.drafted) for one in verified]
    tokens = [[*one.drafted, *[0] * (max(counts) - len(one.drafted))] for one in verified]
    return int64_tensor(tokens, like).view(len(verified), max(counts)), int64_tensor(counts, like)


def _noise(verified: Sequence[VerifiedEntry], draft_tokens: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Returns accept_noise [batch, max_len] and final_noise [batch], keyed by seed, epoch, round and position.

    number: of the round. It is unique, so no two decisions of one session use the same noise.
    """
    entries = [one.entry for one in verified]
    seeds = int64_tensor([entry.opened.sampling.seed for entry in entries], draft_tokens)
    epochs = int64_tensor([entry.opened.epoch for entry in entries], draft_tokens)
    rounds = torch.full_like(seeds, number)
    bases = int64_tensor([entry.base_len for entry in entries], draft_tokens)
    offsets = torch.arange(draft_tokens.shape[1], device=draft_tokens.device)
    accept = uniform(seeds[:, None], Role.ACCEPT, epochs[:, None], rounds[:, None], bases[:, None] + offsets[None, :])
    return accept, uniform(seeds, Role.FINAL, epochs, rounds, bases)


def _outcomes(
    verified: Sequence[VerifiedEntry],
    accepted: Tensor,
    next_token: Tensor,
    agreement: Tensor,
    tops: Tensor,
    gains: Tensor,
) -> list[Outcome]:
    """Returns the outcomes of the ratio rule; tensors are [batch], only tops is [batch, max_len + 1]."""
    table = [accepted.double(), next_token.double(), agreement, gains, *tops.unbind(1)]  # ids are exact in fp64
    return [
        _with_evidence(
            one.outcome(range(int(count)), int(token), agreed, failure(one, top, range(int(count) + 1))), one, gain
        )
        for one, (count, token, agreed, gain, *top) in zip(verified, torch.stack(table, 1).tolist(), strict=True)
    ]


def _with_evidence(outcome: Outcome, one: VerifiedEntry, log_gain: float) -> Outcome:
    if one.draft_probs is None or outcome.failed:
        return outcome
    return replace(outcome, evidence=(*log_tilts(one.draft_probs, tuple(one.drafted)).tolist(), log_gain))


def _with_decisions(
    outcomes: Sequence[Outcome], verified: Sequence[VerifiedEntry], decided: Tensor, ratios: Tensor
) -> list[Outcome]:
    """Adds their decisions to the outcomes; decided and ratios are [batch, max_len]."""
    table = torch.stack([decided.double(), ratios]).tolist()
    return [
        replace(outcome, decisions=Decisions(tuple(map(bool, agreed[:count])), tuple(probabilities[:count])))
        for outcome, agreed, probabilities, count in zip(
            outcomes, *table, (len(s.drafted) for s in verified), strict=True
        )
    ]
