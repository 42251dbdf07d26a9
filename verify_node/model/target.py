"""A round on real tensors: one packed forward pass of the target model, then each session's verification rule.

Takes a `Round` of plain integers and returns the tokens that each entry gets. Runs on the model thread.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from msgspec.structs import replace
from torch import Tensor

from goodspeed.constraint.compiling import Grammars
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.runner import Chunk, Runner, TreePath
from goodspeed.errors import InvalidProposal
from goodspeed.exact import proposals
from goodspeed.exact.counts import CountedTexts, TextCounts
from goodspeed.exact.logit_rules import process
from goodspeed.exact.masks import Words
from goodspeed.exact.rejection import decide_ratio, overlaps, ratios, verify_ratio
from goodspeed.exact.sampling import Role, SamplingBatch, rows_at_once, to_probs, uniform
from goodspeed.wire.messages import LogitRules, Sampling
from verify_node.model.evidence import log_gains, log_tilts
from verify_node.model.forms import Forms, Masks
from verify_node.model.logprobs import Place, with_logprobs, with_prompts
from verify_node.model.match_sampling import (
    decide_match,
    failure,
    groups,
    int64_tensor,
    largest_logits,
    logit_rows,
    text_rows,
)
from verify_node.scheduler.round import Decisions, Entry, Outcome, PromptRows, Round


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The outcomes of a round, and the seconds of its forward pass, with masks beside it, and of its verification."""

    outcomes: list[Outcome]
    forward_s: float
    verify_s: float


@dataclass(frozen=True, slots=True)
class _VerifiedEntry:
    """One entry that samples, with the first row of its logits; `num_drafted` is 0 when its proposal was invalid."""

    entry: Entry
    first_row: int
    num_drafted: int
    draft_probs: Tensor | None = None  # [num_drafted, vocab]
    invalid: str = ""
    counts: TextCounts | None = None  # of its text, where its rules read it
    allowed: Words | None = None  # [num_drafted + 1, num_words], where it has a form

    @property
    def drafted(self) -> tuple[int, ...]:
        return self.entry.tokens[len(self.entry.tokens) - self.entry.num_drafted :][: self.num_drafted]

    @property
    def base_len(self) -> int:
        return self.entry.base_len

    @property
    def parents(self) -> tuple[int, ...] | None:
        return self.entry.parents

    @property
    def sampling(self) -> Sampling:
        return self.entry.sampling

    @property
    def rules(self) -> LogitRules | None:
        return self.entry.rules

    @property
    def may_ban(self) -> bool:
        return bool(self.entry.stop_ids)

    def banned_at(self, position: int) -> tuple[int, ...]:
        return self.entry.banned_at(position)


class Target:
    """The target model with its key/value memory."""

    def __init__(
        self, checkpoint: Checkpoint, runner: Runner, *, records: bool = False, grammars: Grammars | None = None
    ) -> None:
        """records: outcomes contain the decision at each position. grammars: of constraints, if these are served."""
        self.checkpoint = checkpoint
        self.runner = runner
        self.records = records
        self._forms = Forms(grammars)
        self._counted = CountedTexts()
        self._beside = ThreadPoolExecutor(1, "masks")  # they are made while the forward pass runs, without its lock

    def run(self, planned: Round) -> RoundResult:
        """Runs one forward pass over all entries, then verifies by rule; each rule makes one transfer from the
        device."""
        started = time.perf_counter()
        has_forms = any(one.constraint for one in planned.entries)
        making = self._beside.submit(self._forms.prepare(planned)) if has_forms else None
        try:
            logits = self.forward(planned)
        finally:  # also where that fails: the next round must not meet matchers in use
            masks = making.result() if making is not None else {}
        forwarded = time.perf_counter()
        outcomes = self.verify(planned, logits, masks)
        self._forms.keep(self.runner.pool)
        self._counted.keep(self.runner.pool)
        return RoundResult(outcomes, forwarded - started, time.perf_counter() - forwarded)

    def recover(self) -> None:
        """Frees the memory that torch's allocator caches, after a failure."""
        if self.checkpoint.device.type == "cuda":
            torch.cuda.empty_cache()

    @torch.inference_mode()
    def forward(self, planned: Round) -> Tensor:
        """Returns logits [num_rows, vocab], in the order of entries: of each entry rows of its prompt where their
        logprobs are wanted, and a row for each position that it draws at."""
        chunks = [Chunk(entry.session_id, entry.tokens, entry.num_rows, entry.parents) for entry in planned.entries]
        logits = self.runner.forward(chunks)
        if logits.device.type == "cuda":
            torch.cuda.synchronize(logits.device)  # else the forward pass would be timed as verification
        return logits

    def masks(self, planned: Round) -> Masks:
        """Returns what the rows of those entries may draw that have a form to keep."""
        return self._forms.prepare(planned)()

    @torch.inference_mode()
    def verify(self, planned: Round, logits: Tensor, masks: Masks | None = None) -> list[Outcome]:
        """Returns the outcome of every entry that has rows in the logits of `forward`: it samples, or a prompt is told.

        masks: of those that have a form to keep; None: they are made now. Of a tree the key/value memory has no more
        than the accepted path then.
        """
        masks = masks if masks is not None else self.masks(planned)
        verified = self._verified(planned, masks)
        by_match = [one for one in verified if one.entry.verification == "match"]
        by_ratio = [one for one in verified if one.entry.verification == "ratio"]
        outcomes: list[Outcome] = []
        if by_match:
            outcomes += self._match(by_match, logits)
        if by_ratio:
            outcomes += self._ratio(by_ratio, logits, planned.number)
        if masks:
            outcomes = self._forms.told(outcomes, [one.entry for one in verified])
        places = {
            one.entry.session_id: Place(one.first_row, one.entry.num_logprobs)
            for one in verified
            if one.entry.num_logprobs is not None
        }
        known = logits[:, : self.checkpoint.num_tokens]
        outcomes = with_logprobs(outcomes, places, known) if places else outcomes
        return with_prompts(outcomes, _prompt_rows(planned), known)

    def _verified(self, planned: Round, masks: Masks) -> list[_VerifiedEntry]:
        verified: list[_VerifiedEntry] = []
        first_row = 0
        for entry in planned.entries:
            first_row += entry.num_rows
            if entry.samples:
                first = first_row - entry.num_drawn
                verified.append(self._read_proposal(entry, first, masks.get(entry.session_id)))
        return verified

    def _read_proposal(self, entry: Entry, first_row: int, allowed: Words | None) -> _VerifiedEntry:
        """Decodes an entry's proposal under the ratio rule; an invalid one costs its session only the draft."""
        counts = self._counts(entry)
        if entry.verification == "match" or not entry.num_drafted:
            return _VerifiedEntry(entry, first_row, entry.num_drafted, counts=counts, allowed=allowed)
        drafted = entry.tokens[-entry.num_drafted :]
        try:
            probs = proposals.decode(entry.proposal or b"", entry.num_drafted, self.checkpoint.num_tokens, drafted)
        except InvalidProposal as error:
            first = None if allowed is None else allowed[:1]
            return _VerifiedEntry(entry, first_row, 0, invalid=str(error), counts=counts, allowed=first)
        return _VerifiedEntry(entry, first_row, entry.num_drafted, probs, counts=counts, allowed=allowed)

    def _counts(self, entry: Entry) -> TextCounts | None:
        if entry.rules is None or not entry.rules.reads_text:
            return None
        return self._counted.of(entry.session_id, entry.text, entry.prompt_len)

    def _match(self, verified: Sequence[_VerifiedEntry], logits: Tensor) -> list[Outcome]:
        """The target's own draw at every position, then equality."""
        outcomes: list[Outcome] = []
        kept: list[TreePath] = []
        decided = decide_match(verified, logits, self.checkpoint.num_tokens)
        for one, decision in zip(verified, decided, strict=True):
            outcome = _outcome(one, decision.accepted, decision.next_token, decision.agreement, decision.failure)
            if one.parents is not None:
                outcome = replace(outcome, path=tuple(decision.accepted)[: outcome.num_accepted])
                kept.append(TreePath(one.entry.session_id, one.base_len, outcome.path or ()))
            if self.records:
                agreed = tuple(decision.agrees[place] for place in one.entry.first_choices)
                outcome = replace(outcome, decisions=Decisions(agreed))
            outcomes.append(outcome)
        self.runner.keep(kept)
        return outcomes

    def _ratio(self, verified: Sequence[_VerifiedEntry], logits: Tensor, number: int) -> list[Outcome]:
        """Rejection sampling against the distributions that the drafts were sent with."""
        target_probs, tops = _target_probs(verified, logits, self.checkpoint.num_tokens)
        draft_tokens, num_drafted = _drafts(verified, logits)
        draft_probs = torch.zeros(*draft_tokens.shape, target_probs.shape[-1], device=logits.device)
        for row, one in enumerate(verified):
            if one.draft_probs is not None:
                draft_probs[row, : one.num_drafted] = one.draft_probs.to(logits.device)
        accept_noise, final_noise = _noise(verified, draft_tokens, number)
        accepted, next_token = verify_ratio(
            target_probs, draft_tokens, draft_probs, num_drafted, accept_noise, final_noise
        )
        probabilities = ratios(target_probs, draft_tokens, draft_probs, num_drafted)
        shared = overlaps(target_probs, draft_probs, num_drafted)
        outcomes = _outcomes(verified, accepted, next_token, shared.sum(1), tops, log_gains(probabilities, shared))
        if self.records:
            decided = decide_ratio(target_probs, draft_tokens, draft_probs, num_drafted, accept_noise)
            outcomes = _with_decisions(outcomes, verified, decided, probabilities)
        return outcomes


def _prompt_rows(planned: Round) -> list[tuple[bytes, int, PromptRows]]:
    """Returns what of prompts is to be told: the session, the first row of logits, and the tokens that follow."""
    found: list[tuple[bytes, int, PromptRows]] = []
    first_row = 0
    for entry in planned.entries:
        if entry.prompt_rows is not None:
            found.append((entry.session_id, first_row, entry.prompt_rows))
        first_row += entry.num_rows
    return found


def _target_probs(verified: Sequence[_VerifiedEntry], logits: Tensor, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Returns target_probs [batch, max_len + 1, num_tokens] and their rows' `largest_logits` [batch, max_len + 1].

    Rows are drawn together in groups, as under the match rule: logits that rules change are never copied as a whole.
    """
    rows, _, repeats = logit_rows(verified)
    batch = SamplingBatch.of([s.entry.sampling for s in verified], repeats, device=logits.device)
    probs, tops = list[Tensor](), list[Tensor]()
    for some, texts in groups(text_rows(verified), rows_at_once(logits)):
        own = logits[int64_tensor(rows[some], logits)]
        changed = process(own, texts, num_tokens=num_tokens)
        probs.append(to_probs(changed, batch[some], num_tokens=num_tokens))
        tops.append(largest_logits(own, changed))
    columns = int64_tensor(_columns(repeats), logits)
    return _joined(probs)[columns], _joined(tops)[columns]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _columns(repeats: Sequence[int]) -> list[list[int]]:
    """Returns the packed rows' numbers as a rectangle [batch, max(repeats)], padded with each entry's last row."""
    widest = max(repeats)
    columns: list[list[int]] = []
    first = 0
    for count in repeats:
        columns.append([first + min(column, count - 1) for column in range(widest)])
        first += count
    return columns


def _drafts(verified: Sequence[_VerifiedEntry], like: Tensor) -> tuple[Tensor, Tensor]:
    """Returns draft_tokens [batch, max_len], padded with zeros, and num_drafted [batch]."""
    widest = max(one.num_drafted for one in verified)
    tokens = [list(one.drafted) + [0] * (widest - one.num_drafted) for one in verified]
    return int64_tensor(tokens, like).view(len(verified), widest), int64_tensor([s.num_drafted for s in verified], like)


def _noise(verified: Sequence[_VerifiedEntry], draft_tokens: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Returns accept_noise [batch, max_len] and final_noise [batch], keyed by seed, epoch, round and position.

    number: of the round. No round has it again, so nothing is decided twice by the same noise.
    """
    entries = [one.entry for one in verified]
    seeds = int64_tensor([entry.sampling.seed for entry in entries], draft_tokens)
    epochs = int64_tensor([entry.epoch for entry in entries], draft_tokens)
    rounds = torch.full_like(seeds, number)
    bases = int64_tensor([entry.base_len for entry in entries], draft_tokens)
    offsets = torch.arange(draft_tokens.shape[1], device=draft_tokens.device)
    accept = uniform(seeds[:, None], Role.ACCEPT, epochs[:, None], rounds[:, None], bases[:, None] + offsets[None, :])
    return accept, uniform(seeds, Role.FINAL, epochs, rounds, bases)


def _outcomes(
    verified: Sequence[_VerifiedEntry],
    accepted: Tensor,
    next_token: Tensor,
    agreement: Tensor,
    tops: Tensor,
    gains: Tensor,
) -> list[Outcome]:
    """Returns the outcomes of the ratio rule; all tensors are [batch], but for tops [batch, max_len + 1]."""
    table = [accepted.double(), next_token.double(), agreement, gains, *tops.unbind(1)]  # ids are exact in fp64
    return [
        _with_evidence(
            _outcome(one, range(int(count)), int(token), agreed, failure(top, range(int(count) + 1))), one, gain
        )
        for one, (count, token, agreed, gain, *top) in zip(verified, torch.stack(table, 1).tolist(), strict=True)
    ]


def _with_evidence(outcome: Outcome, one: _VerifiedEntry, log_gain: float) -> Outcome:
    if one.draft_probs is None or outcome.failed:
        return outcome
    return replace(outcome, evidence=(*log_tilts(one.draft_probs, one.drafted).tolist(), log_gain))


def _with_decisions(
    outcomes: Sequence[Outcome], verified: Sequence[_VerifiedEntry], decided: Tensor, ratios: Tensor
) -> list[Outcome]:
    """Returns the outcomes with their decisions; decided and ratios are [batch, max_len]."""
    table = torch.stack([decided.double(), ratios]).tolist()
    return [
        replace(outcome, decisions=Decisions(tuple(map(bool, agreed[:count])), tuple(probabilities[:count])))
        for outcome, agreed, probabilities, count in zip(
            outcomes, *table, (s.num_drafted for s in verified), strict=True
        )
    ]


def _outcome(one: _VerifiedEntry, accepted: Sequence[int], token: int, agreement: float, failed: str) -> Outcome:
    """accepted: places of the accepted tokens among those drafted, in order."""
    if failed:
        return Outcome(one.entry.session_id, (), 0, 0.0, one.invalid, failed)
    tokens = (*(one.drafted[place] for place in accepted), token)
    return Outcome(one.entry.session_id, tokens, len(accepted), agreement, one.invalid)
