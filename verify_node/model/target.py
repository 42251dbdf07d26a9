"""Runs a round on tensors: one packed forward pass of the target model, then each session's verification rule.

Takes a `Round` of plain integers and returns each entry's new tokens. Runs on the model thread.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.base import Checkpoint, Engine, mark
from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.errors import NOT_NUMBERS
from goodspeed.exact.logits.token_counts import CountedTexts, TextCounts
from verify_node.model.constraints import ConstraintMasks, Masks
from verify_node.model.entries import VerifiedEntry
from verify_node.model.logprobs import with_logprobs, with_prompts
from verify_node.model.match_rule import decide_match_round
from verify_node.model.own_drafter import OwnDrafter
from verify_node.model.ratio_rule import decide_ratio_round
from verify_node.scheduler.round import NO_DRAFTING, Drafting, Entry, Outcome, Round


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The outcomes of a round, the seconds of its verification (masks are made before), the own draft model's work for
    the next round, and `Engine.computed`."""

    outcomes: list[Outcome]
    verify_s: float
    drafting: Drafting = NO_DRAFTING
    computed: float | None = None


class Target:
    """The target model with its KV cache."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine: Engine,
        *,
        records: bool = False,
        constraints: Constraints | None = None,
        draft_model: OwnDrafter | None = None,
    ) -> None:
        """records: outcomes contain the decision at each position. constraints: None if none are served. draft_model:
        None if the verify node has no draft model."""
        self.checkpoint = checkpoint
        self.engine = engine
        self.records = records
        self.draft_model = draft_model
        self._constraint_masks = ConstraintMasks(constraints)
        self._counted = CountedTexts()
        self._beside = ThreadPoolExecutor(1, "masks")  # makes masks during the forward pass, without Python's lock

    def run(self, planned: Round) -> RoundResult:
        """Runs one forward pass over all entries, then verifies by rule; few transfers from the device per rule.

        A GPU is not waited for between the two: it computes the pass while Python hands out the verification.
        """
        started, begin = time.perf_counter(), mark(self.checkpoint.device)
        has_constraints = any(one.opened.constraint for one in planned.entries)
        making = self._beside.submit(self._constraint_masks.prepare(planned)) if has_constraints else None
        try:
            logits = self.forward(planned)
        finally:  # also on failure: the next round must not find matchers in use
            masks = making.result() if making is not None else {}
        forwarded, end = time.perf_counter(), mark(self.checkpoint.device)
        outcomes = self.verify(planned, logits, masks)
        self._counted.keep(self.engine.pool)
        if begin is not None and end is not None:
            end.synchronize()  # a round that samples nothing has not waited yet
            forwarded = started + begin.elapsed_time(end) / 1e3
        verified = time.perf_counter()
        verify_s, computed = max(0.0, verified - forwarded), self.engine.computed
        if (own := self.draft_model) is None:
            return RoundResult(outcomes, verify_s, computed=computed)
        own.keep(self.engine.pool, planned.admitted)
        outcomes, drafting = own.add_to(planned, outcomes)
        return RoundResult(outcomes, verify_s, drafting, computed)

    def recover(self) -> None:
        """Frees memory cached by torch's allocator, after a failure."""
        if self.checkpoint.device.type == "cuda":
            torch.cuda.empty_cache()

    @torch.inference_mode()
    def forward(self, planned: Round) -> Tensor:
        """Returns logits [num_rows, vocab] in the order of entries: an entry's prompt rows if their logprobs are
        requested, then a row per position to sample."""
        chunks = [Chunk(entry.session_id, entry.tokens, entry.num_rows, entry.parents) for entry in planned.entries]
        return self.engine.forward(chunks)

    @torch.inference_mode()
    def verify(self, planned: Round, logits: Tensor, masks: Masks | None = None) -> list[Outcome]:
        """Returns the outcome of every entry that samples, or whose prompt's logprobs are requested.

        logits [rows, vocab_size]: of `forward`. masks: of constrained entries; None: they are made now. Of a tree, the
        KV cache then retains only the accepted path.
        """
        masks = masks if masks is not None else self._constraint_masks.prepare(planned)()
        verified = self._verified(planned, masks)
        by_match = [one for one in verified if one.entry.verification == "match"]
        by_ratio = [one for one in verified if one.entry.verification == "ratio"]
        outcomes, num_tokens = list[Outcome](), self.checkpoint.num_tokens
        if by_match:
            outcomes = decide_match_round(by_match, logits, num_tokens, records=self.records)
            paths = [
                TreePath(one.entry.session_id, one.entry.base_len, outcome.path)
                for one, outcome in zip(by_match, outcomes, strict=True)
                if outcome.path is not None and not outcome.failed  # else the session is given up, with all of its rows
            ]
            self.engine.keep(paths)
        if by_ratio:
            outcomes += decide_ratio_round(by_ratio, logits, num_tokens, planned.number, records=self.records)
        if masks:
            outcomes = self._constraint_masks.told(outcomes, [one.entry for one in verified])
        known = logits[:, :num_tokens]
        outcomes = with_prompts(with_logprobs(outcomes, verified, known), planned.entries, known)
        if broken := [one.session_id for one in outcomes if one.failed == NOT_NUMBERS]:
            self.engine.clear(broken)
        return outcomes

    def _verified(self, planned: Round, masks: Masks) -> list[VerifiedEntry]:
        verified: list[VerifiedEntry] = []
        first_row = 0
        for entry in planned.entries:
            first_row += entry.num_rows
            if entry.samples:
                one = VerifiedEntry(
                    entry=entry,
                    first_row=first_row - entry.num_drawn,
                    drafted=entry.drafted.tokens,
                    counts=self._counts(entry),
                    allowed=masks.get(entry.session_id),
                    has_finite_keys=self.engine.has_finite_keys,
                )
                verified.append(one.decoded(self.checkpoint.num_tokens))
        return verified

    def _counts(self, entry: Entry) -> TextCounts | None:
        rules = entry.opened.logit_rules
        if rules is None or not rules.reads_text:
            return None
        return self._counted.of(entry.session_id, tuple(entry.text), len(entry.opened.prompt))
