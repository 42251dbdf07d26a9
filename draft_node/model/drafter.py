"""The draft model: one batched forward pass per drafting step, for all sessions with proposals.

A proposal first updates the session's KV cache: rejected tokens are truncated, new tokens of the text are prefilled
(many, after a time without drafts). Under the match rule the draft is drawn with the target's noise; under the ratio
rule it is drawn from exactly the distribution that is sent. Local texts, which are not verified, are drawn as under the
match rule. Runs on the model thread.
"""

from itertools import compress

import torch
from torch import Tensor

from draft_node.core.actions import Propose, Proposed, Request
from draft_node.model.caches import Caches
from draft_node.model.job import Job
from draft_node.model.noise_ahead import noise_ahead
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.masks import Matchers
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.runner import Chunk, Runner
from goodspeed.errors import ConstraintError
from goodspeed.exact import proposals
from goodspeed.exact.counts import CountedTexts
from goodspeed.exact.logit_rules import TextRows, process
from goodspeed.exact.masks import Words
from goodspeed.exact.sampling import Role, SamplingBatch, choose, to_probs, uniform
from goodspeed.wire.codec import MAX_MESSAGE_BYTES
from goodspeed.wire.fields import MAX_DRAFT

AT_NO_CONFIDENCE = 0.4
"""Acceptance probability of a token with draft probability 0; linear from there to 1 (AdaSpec's confidence prior).

Both models draw with the same noise, so that the target often draws even an improbable token of the draft model. At
T = 1, with `tiny-draft-s`, half of the tokens below 0.05 were accepted, about 0.7 of those between 0.1 and 0.6, and
nearly all above 0.9. Lower values stop drafts too soon."""


class Drafter:
    """A draft model with its KV caches; `add` proposals, then `step` until they are complete."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        runner: Runner,
        *,
        kind: str = "lattice",
        k: int = 64,
        constraints: Constraints | None = None,
    ) -> None:
        """kind, k: form of the distributions under the ratio rule (`proposals.make`).

        constraints: compiler for structured output; None: drafts ignore constraints.
        """
        self.checkpoint = checkpoint
        self.runner = runner
        self.num_tokens = checkpoint.num_tokens  # drafted ids are below it; the target has the same tokenizer
        self.max_proposal_bytes = MAX_MESSAGE_BYTES
        self.kind = kind
        self.k = k
        self.constraints = constraints
        self._matchers = None if constraints is None else Matchers(constraints)
        self._counted = CountedTexts()
        self._jobs: dict[bytes, Job] = {}
        self.caches = Caches(runner, checkpoint.context_len)

    @property
    def context_len(self) -> int:
        """Tokens of the longest text that fits the model's context and, alone, the memory."""
        pool = self.runner.pool
        return min(self.checkpoint.context_len, pool.num_pages * pool.page_size)

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def add(self, propose: Propose) -> None:
        """Starts a proposal, which replaces an unfinished one of the same session."""
        length = propose.length if propose.local else min(propose.length, self._longest(propose.request))
        job = Job(propose, length)
        self.caches.rewind(job)
        self._jobs[job.session_id] = job

    def forget(self, session_id: bytes) -> None:
        """Drops the state of a closed session and frees its memory."""
        self._jobs.pop(session_id, None)
        if self._matchers is not None:
            self._matchers.forget(session_id)
        self._counted.forget(session_id)
        self.caches.forget(session_id)

    def give_up(self) -> list[Proposed]:
        """Drops all unfinished proposals; returns an empty one for each, so that sessions continue without drafts."""
        given_up = [job.proposed(empty=True) for job in self._jobs.values()]
        self._jobs.clear()
        return given_up

    def abandon(self) -> list[Proposed]:
        """Gives up after the model failed, and drops all caches: their contents are uncertain."""
        given_up = self.give_up()
        for session_id in list(self.caches):
            self.runner.pool.withdraw(session_id)
            self.forget(session_id)
        return given_up

    @torch.inference_mode()
    def step(self) -> list[Proposed]:
        """Runs one forward pass for all unfinished proposals; returns those that are complete."""
        self.caches.begin_step()
        jobs: list[Job] = []
        done: list[Job] = []
        for job in [self._jobs[key] for key in self.caches if key in self._jobs]:  # the oldest sessions first
            if self.caches.is_read_by_another(job):
                continue
            (jobs if self.caches.reserve(job, self._jobs) else done).append(job)
        chunks = [self._chunk(job) for job in jobs]
        sampling = [job for job, chunk in zip(jobs, chunks, strict=True) if chunk.num_logits]
        if any(chunk.tokens for chunk in chunks):
            logits = self.runner.forward(chunks)  # [len(sampling), vocab]
            for job, chunk in zip(jobs, chunks, strict=True):
                self.caches.note_fed(job, chunk.tokens)
            if sampling:
                self._draw(sampling, logits)
        done += [job for job in jobs if self._is_complete(job)]
        for job in done:
            del self._jobs[job.session_id]
        return [job.proposed() for job in done]

    def _longest(self, request: Request) -> int:
        """Returns the most tokens of a draft; under the ratio rule their distributions must fit into one message."""
        if request.verification == "match":
            return MAX_DRAFT
        return self.max_proposal_bytes // proposals.position_bytes(self.kind, self.num_tokens, self.k)

    def _chunk(self, job: Job) -> Chunk:
        tokens = self.caches.lacking(job)
        draws = job.length > 0 and self.caches.num_cached(job) + len(tokens) == len(job.tokens)
        return Chunk(job.session_id, tokens, int(draws))

    def _draw(self, jobs: list[Job], logits: Tensor) -> None:
        """Draws one token for each job from logits [len(jobs), vocab], by its session's rule."""
        jobs, logits = self._apply_rules(jobs, logits)
        match = [index for index, job in enumerate(jobs) if job.by_match]
        ratio = [index for index, job in enumerate(jobs) if not job.by_match]
        if match:
            chosen = [jobs[index] for index in match]
            rows = logits if not ratio else logits[match]
            batch = _batch(chosen, logits)
            positions = batch.tensor([len(job.tokens) for job in chosen], torch.int64)
            tokens = choose(rows, batch, positions, num_tokens=self.num_tokens, noise=noise_ahead)
            _append(chosen, tokens)
            for job, probability in zip(chosen, acceptance_probabilities(rows, tokens).tolist(), strict=True):
                job.probabilities.append(probability)
            self._draw_alternatives(chosen, rows, tokens)
        if ratio:
            self._draw_from_proposals([jobs[index] for index in ratio], logits[ratio])

    def _apply_rules(self, jobs: list[Job], logits: Tensor) -> tuple[list[Job], Tensor]:
        """Applies the rules to logits; returns the jobs that may draw a token, and their logits.

        The proposals of jobs without a permitted token end here.
        """
        changed = process(logits, [self._text_rows(job) for job in jobs], num_tokens=self.num_tokens)
        if changed is logits:
            return jobs, logits
        can_draw = (changed.amax(-1) > float("-inf")).tolist()
        if all(can_draw):
            return jobs, changed
        for job in compress(jobs, (not each for each in can_draw)):
            job.length = job.num_drafted
        return list(compress(jobs, can_draw)), changed[can_draw]

    def _text_rows(self, job: Job) -> TextRows:
        """Returns the input of `process` for the job's next token."""
        request, rules = job.propose.request, job.propose.request.logit_rules
        banned, words = request.banned_at(len(job.tokens)), allowed(self._matchers, job)
        if rules is None:
            return TextRows(banned=[banned] if banned else None, allowed=words)
        is_read = rules.reads_text
        return TextRows(
            paths=[job.drafted if is_read else ()],
            rules=rules,
            temperature=request.sampling.temperature,
            banned=[banned],
            counts=self._counted.of(job.session_id, job.propose.tokens, len(request.prompt)) if is_read else None,
            allowed=words,
        )

    def _draw_alternatives(self, jobs: list[Job], logits: Tensor, tokens: Tensor) -> None:
        """Draws a second choice in addition to tokens [len(jobs)], for jobs in doubt: the best of the other tokens."""
        doubtful = [row for row, job in enumerate(jobs) if job.doubts]
        for job in jobs:
            job.alternatives.append(None)
        if not doubtful:
            return
        chosen = [jobs[row] for row in doubtful]
        others = logits[doubtful].scatter(1, tokens[doubtful].unsqueeze(1), float("-inf"))
        has_others = others.amax(-1).isfinite()  # rules may leave a single token
        batch = _batch(chosen, logits)
        positions = batch.tensor([len(job.tokens) - 1 for job in chosen], torch.int64)
        drawn = choose(others, batch, positions, num_tokens=self.num_tokens, noise=noise_ahead)
        for job, token, is_drawn in zip(chosen, drawn.tolist(), has_others.tolist(), strict=True):
            job.alternatives[-1] = token if is_drawn else None

    def _draw_from_proposals(self, jobs: list[Job], logits: Tensor) -> None:
        batch = _batch(jobs, logits)
        probs = to_probs(logits, batch, num_tokens=self.num_tokens)
        proposal = proposals.make(probs, self.kind, k=self.k)
        epochs = batch.tensor([job.propose.epoch for job in jobs], torch.int64)
        rounds = batch.tensor([job.propose.round for job in jobs], torch.int64)
        positions = batch.tensor([len(job.tokens) for job in jobs], torch.int64)
        seeds = batch.tensor([job.noise_seed for job in jobs], torch.int64)
        tokens = proposal.sample(uniform(seeds, Role.DRAFT, epochs, rounds, positions))
        for job, packed in zip(jobs, proposal.pack(), strict=True):
            job.positions.append(packed)
        _append(jobs, tokens)

    def _is_complete(self, job: Job) -> bool:
        if job.length == 0:
            return self.caches.num_cached(job) >= len(job.tokens) - 1
        return job.num_drafted >= job.length or job.stopped or job.doubts_all


def _batch(jobs: list[Job], logits: Tensor) -> SamplingBatch:
    return SamplingBatch.of([job.propose.request.sampling for job in jobs], device=logits.device)


def _append(jobs: list[Job], tokens: Tensor) -> None:
    for job, token in zip(jobs, tokens.tolist(), strict=True):
        job.tokens.append(token)


def acceptance_probabilities(logits: Tensor, tokens: Tensor) -> Tensor:
    """Returns acceptance probabilities [batch] of tokens [batch] drawn from logits [batch, vocab] (match rule).

    Based on the model's probabilities before temperature and truncation, which show doubt even at temperature 0.
    """
    confidence = logits.softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)  # faster than logsumexp
    return AT_NO_CONFIDENCE + (1.0 - AT_NO_CONFIDENCE) * confidence


def allowed(matchers: Matchers | None, job: Job) -> Words | None:
    """Returns the bit mask of a job's permitted next tokens [1, num_words]; None: any token.

    The verify node applies its own masks, so that a missing mask here only costs acceptance. On the model thread, only
    the constraints of local texts are compiled.
    """
    request = job.propose.request
    if matchers is None or request.constraint is None:
        return None
    if not job.propose.local and not matchers.constraints.holds(request.session_id, request.constraint):
        return None
    try:
        matcher = matchers.of(request.session_id, request.constraint, request.stop_ids)
    except ConstraintError:
        return None
    return matcher.allowed(job.tokens[len(request.prompt) :])
