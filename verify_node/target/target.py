"""A round on real tensors: one packed forward pass of the target model, then each session's verification rule.

Knows nothing about who the sessions are, about budgets or about messages: a `Round` of plain integers comes in, the
tokens that each entry gets go out. Runs on the model thread.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from operator import eq

import torch
from msgspec.structs import replace
from torch import Tensor

from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.runner import Chunk, Runner
from goodspeed.errors import InvalidProposal
from goodspeed.exact import proposals
from goodspeed.exact.rejection import decide_ratio, overlaps, ratios, verify_ratio
from goodspeed.exact.sampling import Role, SamplingBatch, to_probs, uniform
from goodspeed.wire.messages import Sampling
from verify_node.rounds.outcomes import Decisions, Outcome
from verify_node.rounds.planner import Entry, Round
from verify_node.target.evidence import log_gains, log_tilts
from verify_node.target.logprobs import Place, with_logprobs
from verify_node.target.match_sampling import decide_match, integers, largest, rows_of, without_banned


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round came to, and where its time went."""

    outcomes: list[Outcome]
    forward_s: float
    verify_s: float


@dataclass(frozen=True, slots=True)
class _Sampling:
    """One entry that samples, with where its logits are; `num_drafted` is 0 when its proposal was invalid."""

    entry: Entry
    first_row: int
    num_drafted: int
    draft_probs: Tensor | None = None  # [num_drafted, vocab]
    invalid: str = ""

    @property
    def drafted(self) -> tuple[int, ...]:
        return self.entry.tokens[len(self.entry.tokens) - self.entry.num_drafted :][: self.num_drafted]

    @property
    def base_len(self) -> int:
        return self.entry.base_len

    @property
    def sampling(self) -> Sampling:
        return self.entry.sampling

    @property
    def may_ban(self) -> bool:
        return bool(self.entry.stop_ids)

    def banned_at(self, position: int) -> tuple[int, ...]:
        return self.entry.banned_at(position)


class Target:
    """The target model with its key/value memory."""

    def __init__(self, checkpoint: Checkpoint, runner: Runner, *, records: bool = False) -> None:
        """records: outcomes tell what was decided at each position."""
        self.checkpoint = checkpoint
        self.runner = runner
        self.records = records

    def run(self, planned: Round) -> RoundResult:
        """One forward pass over all entries, then verification by rule; one transfer from the device for each rule."""
        started = time.perf_counter()
        logits = self.forward(planned)
        forwarded = time.perf_counter()
        outcomes = self.verify(planned, logits)
        return RoundResult(outcomes, forwarded - started, time.perf_counter() - forwarded)

    def recover(self) -> None:
        """After a failure: gives back what the allocator holds on to."""
        if self.checkpoint.device.type == "cuda":
            torch.cuda.empty_cache()

    @torch.inference_mode()
    def forward(self, planned: Round) -> Tensor:
        """Logits [num_rows, vocab]: a row for each position that an entry draws at, in the order of entries."""
        chunks = [
            Chunk(entry.session_id, entry.tokens, entry.num_drafted + 1 if entry.samples else 0)
            for entry in planned.entries
        ]
        logits = self.runner.forward(chunks)
        if logits.device.type == "cuda":
            torch.cuda.synchronize(logits.device)  # else the forward pass would be timed as verification
        return logits

    @torch.inference_mode()
    def verify(self, planned: Round, logits: Tensor) -> list[Outcome]:
        """What the logits of `forward` decide for every entry that samples."""
        samplings = self._samplings(planned)
        by_match = [sampling for sampling in samplings if sampling.entry.verification == "match"]
        by_ratio = [sampling for sampling in samplings if sampling.entry.verification == "ratio"]
        outcomes: list[Outcome] = []
        if by_match:
            outcomes += self._match(by_match, logits)
        if by_ratio:
            outcomes += self._ratio(by_ratio, logits)
        places = {
            sampling.entry.session_id: Place(sampling.first_row, sampling.entry.num_logprobs)
            for sampling in samplings
            if sampling.entry.num_logprobs is not None
        }
        return with_logprobs(outcomes, places, logits[:, : self.checkpoint.num_tokens]) if places else outcomes

    def _samplings(self, planned: Round) -> list[_Sampling]:
        samplings: list[_Sampling] = []
        first_row = 0
        for entry in planned.entries:
            if entry.samples:
                samplings.append(self._sampling(entry, first_row))
                first_row += entry.num_drafted + 1
        return samplings

    def _sampling(self, entry: Entry, first_row: int) -> _Sampling:
        """Reads the proposal of an entry under the ratio rule; a bad one costs its session the draft, nothing else."""
        if entry.verification == "match" or not entry.num_drafted:
            return _Sampling(entry, first_row, entry.num_drafted)
        drafted = entry.tokens[-entry.num_drafted :]
        try:
            probs = proposals.decode(entry.proposal or b"", entry.num_drafted, self.checkpoint.num_tokens, drafted)
        except InvalidProposal as error:
            return _Sampling(entry, first_row, 0, invalid=str(error))
        return _Sampling(entry, first_row, entry.num_drafted, draft_probs=probs)

    def _match(self, samplings: Sequence[_Sampling], logits: Tensor) -> list[Outcome]:
        """The target's own draw at every position, then equality."""
        outcomes: list[Outcome] = []
        decided = decide_match(samplings, logits, self.checkpoint.num_tokens)
        for sampling, one in zip(samplings, decided, strict=True):
            outcome = _outcome(sampling, one.num_accepted, one.next_token, one.agreement, one.is_finite)
            if self.records:
                outcome = replace(outcome, decisions=Decisions(tuple(map(eq, one.target_tokens, sampling.drafted))))
            outcomes.append(outcome)
        return outcomes

    def _ratio(self, samplings: Sequence[_Sampling], logits: Tensor) -> list[Outcome]:
        """Rejection sampling against the distributions that were sent."""
        rows, _, repeats = rows_of(samplings)
        batch = SamplingBatch.of([s.entry.sampling for s in samplings], repeats, device=logits.device)
        wanted, columns = logits[integers(rows, logits)], _columns(repeats)
        allowed = without_banned(samplings, wanted)
        probs = to_probs(allowed, batch, num_tokens=self.checkpoint.num_tokens)
        target_probs = probs[integers(columns, logits)]  # [batch, max_len + 1, vocab]
        draft_tokens, num_drafted = _drafts(samplings, logits)
        draft_probs = torch.zeros(*draft_tokens.shape, probs.shape[-1], device=logits.device)
        for row, sampling in enumerate(samplings):
            if sampling.draft_probs is not None:
                draft_probs[row, : sampling.num_drafted] = sampling.draft_probs.to(logits.device)
        accept_noise, final_noise = _noise(samplings, draft_tokens)
        accepted, next_token = verify_ratio(
            target_probs, draft_tokens, draft_probs, num_drafted, accept_noise, final_noise
        )
        odds = ratios(target_probs, draft_tokens, draft_probs, num_drafted)
        shared = overlaps(target_probs, draft_probs, num_drafted)
        finite = _finite(largest(wanted, allowed), columns)
        outcomes = _outcomes(samplings, accepted, next_token, shared.sum(1), finite, log_gains(odds, shared))
        if self.records:
            decided = decide_ratio(target_probs, draft_tokens, draft_probs, num_drafted, accept_noise)
            outcomes = _with_decisions(outcomes, samplings, decided, odds)
        return outcomes


def _columns(repeats: Sequence[int]) -> list[list[int]]:
    """Packed rows as a rectangle [batch, max(repeats)]; what stands in the padding is never looked at."""
    widest = max(repeats)
    columns: list[list[int]] = []
    first = 0
    for count in repeats:
        columns.append([first + min(column, count - 1) for column in range(widest)])
        first += count
    return columns


def _drafts(samplings: Sequence[_Sampling], like: Tensor) -> tuple[Tensor, Tensor]:
    """draft_tokens [batch, max_len] with zeros as padding, and num_drafted [batch]."""
    widest = max(sampling.num_drafted for sampling in samplings)
    tokens = [list(sampling.drafted) + [0] * (widest - sampling.num_drafted) for sampling in samplings]
    return integers(tokens, like).view(len(samplings), widest), integers([s.num_drafted for s in samplings], like)


def _noise(samplings: Sequence[_Sampling], draft_tokens: Tensor) -> tuple[Tensor, Tensor]:
    """accept_noise [batch, max_len] and final_noise [batch], keyed by seed, epoch, round and position."""
    entries = [sampling.entry for sampling in samplings]
    seeds = integers([entry.sampling.seed for entry in entries], draft_tokens)
    epochs = integers([entry.epoch for entry in entries], draft_tokens)
    rounds = integers([entry.draft_round or 0 for entry in entries], draft_tokens)
    bases = integers([entry.base_len for entry in entries], draft_tokens)
    offsets = torch.arange(draft_tokens.shape[1], device=draft_tokens.device)
    accept = uniform(seeds[:, None], Role.ACCEPT, epochs[:, None], rounds[:, None], bases[:, None] + offsets[None, :])
    return accept, uniform(seeds, Role.FINAL, epochs, rounds, bases)


def _finite(largest: Tensor, columns: Sequence[Sequence[int]]) -> Tensor:
    """Whether every row of an entry has a largest logit [num_rows] that is a number [batch]: an overflow has none."""
    return largest.isfinite()[integers(columns, largest)].all(1)


def _outcomes(
    samplings: Sequence[_Sampling],
    accepted: Tensor,
    next_token: Tensor,
    agreement: Tensor,
    finite: Tensor,
    gains: Tensor,
) -> list[Outcome]:
    """Of the ratio rule, all [batch]."""
    table = [accepted.double(), next_token.double(), agreement, finite.double(), gains]  # ids are exact in fp64
    return [
        _with_evidence(_outcome(sampling, int(num_accepted), int(token), agreed, bool(is_finite)), sampling, gain)
        for sampling, num_accepted, token, agreed, is_finite, gain in zip(
            samplings, *torch.stack(table).tolist(), strict=True
        )
    ]


def _with_evidence(outcome: Outcome, sampling: _Sampling, log_gain: float) -> Outcome:
    if sampling.draft_probs is None or outcome.failed:
        return outcome
    return replace(outcome, evidence=(*log_tilts(sampling.draft_probs, sampling.drafted).tolist(), log_gain))


def _with_decisions(
    outcomes: Sequence[Outcome], samplings: Sequence[_Sampling], decided: Tensor, ratios: Tensor
) -> list[Outcome]:
    """decided and ratios [batch, max_len]."""
    table = torch.stack([decided.double(), ratios]).tolist()
    return [
        replace(outcome, decisions=Decisions(tuple(map(bool, agreed[:count])), tuple(odds[:count])))
        for outcome, agreed, odds, count in zip(outcomes, *table, (s.num_drafted for s in samplings), strict=True)
    ]


def _outcome(sampling: _Sampling, num_accepted: int, token: int, agreement: float, is_finite: bool) -> Outcome:
    if not is_finite:
        return Outcome(sampling.entry.session_id, (), 0, 0.0, sampling.invalid, "its logits are not numbers")
    tokens = (*sampling.drafted[:num_accepted], token)
    return Outcome(sampling.entry.session_id, tokens, num_accepted, agreement, sampling.invalid)
