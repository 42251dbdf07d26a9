"""The draft model: one batched forward pass per drafting step, for all sessions with proposals.

A step drafts one token of each session, or several with a checkpoint that predicts more (PARD, arXiv 2504.18583): masks
after the text stand for tokens not known yet, and each predicts the token after it without them.

A proposal first updates the session's KV cache: rejected tokens are truncated, new tokens of the text are prefilled
(many, after a time without drafts). Under the match rule the draft is drawn with the target's noise; under the ratio
rule it is drawn from exactly the distribution that is sent. Local texts, which are not verified, are drawn as under the
match rule. Runs on the model thread.
"""

from collections import Counter
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
from goodspeed.exact.confidence import acceptance_probabilities
from goodspeed.exact.counts import CountedTexts
from goodspeed.exact.logit_rules import TextRows, process
from goodspeed.exact.masks import Words
from goodspeed.exact.sampling import Role, SamplingBatch, choose, to_probs, uniform
from goodspeed.wire.codec import MAX_MESSAGE_BYTES
from goodspeed.wire.fields import MAX_DRAFT


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
        self.caches = Caches(runner)

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
        if any(chunk.tokens for chunk in chunks):
            logits = self.runner.forward(chunks)  # [tokens to draw, vocab]
            for job, chunk in zip(jobs, chunks, strict=True):
                self.caches.note_fed(job, chunk.tokens)
            self._draw_all(
                [job for job, chunk in zip(jobs, chunks, strict=True) for _ in range(chunk.num_logits)], logits
            )
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
        num_masks = self.caches.num_masks(job)
        num_logits = num_masks + 1 if self.caches.draws(job) else 0
        job.num_known = len(job.tokens)
        return Chunk(job.session_id, self.caches.lacking(job), num_logits, num_masks=num_masks)

    def _draw_all(self, owners: list[Job], logits: Tensor) -> None:
        """Draws from logits [len(owners), vocab] of consecutive positions of each job.

        All at once, unless what a text may continue with depends on its tokens: then position after position.
        """
        places = _places(owners)
        if not any(places) or not any(job.has_rules for job in owners):
            self._draw(owners, logits)
            return
        for place in range(max(places) + 1):
            rows = [row for row, job in enumerate(owners) if places[row] == place and not self._is_complete(job)]
            self._draw([owners[row] for row in rows], logits[rows])

    def _draw(self, jobs: list[Job], logits: Tensor) -> None:
        """Draws a token from each row of logits [len(jobs), vocab], by its session's rule.

        A job that comes several times draws consecutive tokens, until it is complete.
        """
        if not jobs:
            return
        jobs, logits = self._apply_rules(jobs, logits)
        match = [index for index, job in enumerate(jobs) if job.by_match]
        ratio = [index for index, job in enumerate(jobs) if not job.by_match]
        if match:
            chosen = [jobs[index] for index in match]
            rows = logits if not ratio else logits[match]
            batch = _batch(chosen, logits)
            positions = _positions(chosen)
            at = batch.tensor(positions, torch.int64)
            tokens = choose(rows, batch, at, num_tokens=self.num_tokens, noise=noise_ahead)
            are_behind = [position > job.num_known for position, job in zip(positions, chosen, strict=True)]
            self._append(chosen, rows, tokens, acceptance_probabilities(rows, tokens, are_behind).tolist())
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

    def _append(self, jobs: list[Job], logits: Tensor, tokens: Tensor, probabilities: list[float]) -> None:
        """Appends tokens [len(jobs)] to the jobs, each until it is complete, and second choices to doubtful tokens."""
        doubtful: dict[int, int] = {}  # place of the token in its draft, by row
        for row, (job, token, probability) in enumerate(zip(jobs, tokens.tolist(), probabilities, strict=True)):
            if self._is_complete(job):
                continue
            job.tokens.append(token)
            job.probabilities.append(probability)
            job.alternatives.append(None)
            if job.doubts:
                doubtful[row] = job.num_drafted - 1
        if doubtful:
            self._draw_alternatives(jobs, logits, tokens, doubtful)

    def _draw_alternatives(self, jobs: list[Job], logits: Tensor, tokens: Tensor, places: dict[int, int]) -> None:
        """Draws the best of the other tokens as a second choice to some of tokens [len(jobs)].

        places: by row, the place of the token in its draft.
        """
        doubtful = list(places)
        chosen = [jobs[row] for row in doubtful]
        others = logits[doubtful].scatter(1, tokens[doubtful].unsqueeze(1), float("-inf"))
        has_others = others.amax(-1).isfinite()  # rules may leave a single token
        batch = _batch(chosen, logits)
        positions = batch.tensor([len(jobs[row].propose.tokens) + place for row, place in places.items()], torch.int64)
        drawn = choose(others, batch, positions, num_tokens=self.num_tokens, noise=noise_ahead)
        for job, place, token, is_drawn in zip(
            chosen, places.values(), drawn.tolist(), has_others.tolist(), strict=True
        ):
            job.alternatives[place] = token if is_drawn else None

    def _draw_from_proposals(self, jobs: list[Job], logits: Tensor) -> None:
        batch = _batch(jobs, logits)
        probs = to_probs(logits, batch, num_tokens=self.num_tokens)
        proposal = proposals.make(probs, self.kind, k=self.k)
        epochs = batch.tensor([job.propose.epoch for job in jobs], torch.int64)
        rounds = batch.tensor([job.propose.round for job in jobs], torch.int64)
        positions = batch.tensor(_positions(jobs), torch.int64)
        seeds = batch.tensor([job.noise_seed for job in jobs], torch.int64)
        tokens = proposal.sample(uniform(seeds, Role.DRAFT, epochs, rounds, positions))
        for job, packed, token in zip(jobs, proposal.pack(), tokens.tolist(), strict=True):
            job.positions.append(packed)
            job.tokens.append(token)

    def _is_complete(self, job: Job) -> bool:
        if job.length == 0:
            return self.caches.num_cached(job) >= len(job.tokens) - 1
        return job.num_drafted >= job.length or job.stopped or job.doubts_all


def _batch(jobs: list[Job], logits: Tensor) -> SamplingBatch:
    return SamplingBatch.of([job.propose.request.sampling for job in jobs], device=logits.device)


def _places(jobs: list[Job]) -> list[int]:
    """Returns how often each job came before, for jobs that come several times."""
    num_times: Counter[bytes] = Counter()
    places = []
    for job in jobs:
        places.append(num_times[job.session_id])
        num_times[job.session_id] += 1
    return places


def _positions(jobs: list[Job]) -> list[int]:
    """Returns the positions of the tokens that jobs draw next: consecutive ones for a job that comes several times."""
    return [len(job.tokens) + place for job, place in zip(jobs, _places(jobs), strict=True)]


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
