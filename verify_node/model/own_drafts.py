"""Drafts for the next round with the verify node's own draft model, as soon as a round is decided.

Runs one batched forward pass per depth over all sessions (per several depths with a PARD model), and draws with the
match rule's noise. Passes run only while the expected gain is worth their time. The model's KV caches follow the
target's sessions. Runs on the model thread.
"""

import logging
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import torch
from msgspec.structs import replace

from goodspeed.engine.engine import Checkpoint, Engine
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.exact.confidence import acceptance_probabilities
from goodspeed.exact.counts import num_common
from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.fair.estimators import smoothed
from goodspeed.wire import probabilities
from verify_node.scheduler.round import Drafting, DraftRequest, Outcome, Round

logger = logging.getLogger("goodspeed.verify")

MAX_LENGTH = 8
"""Longest draft."""

PREFILL, LEAST_PREFILL = 256, 16
"""Most tokens prefilled in a round, over all sessions that lag behind, and the most where the target's own prefill has
used up the round's room; the rest of a long prompt follows in later rounds."""

FIRST_PROBABILITY = 0.7
"""Expected acceptance probability of a draft's first token, before its pass."""

SMOOTHING, FORGETTING = 0.1, 0.98
"""Smoothing step of a pass's time, and factor on that time in a round without passes: one slow pass must not end
drafting forever."""

RESTED_ROUNDS, MAX_RESTED_ROUNDS = 64, 1 << 14
"""Rounds without own drafts after a failure; twice as many after each further one, at most MAX_RESTED_ROUNDS."""


@dataclass(slots=True)
class Job:
    """A session's draft while it is made."""

    request: DraftRequest
    new: tuple[int, ...]  # the round's new tokens, after the request's text
    length: int  # tokens to draft; 0 only fills the cache
    num_parallel: int = 1  # most tokens that a pass draws
    num_fed: int = 0  # tokens of the text that the first pass feeds
    drafted: list[int] = field(default_factory=list)
    codes: bytes = b""  # of their claimed probabilities
    path: float = 1.0  # calibrated probability that all of `tokens` are accepted

    @property
    def key(self) -> bytes:
        return self.request.session_id

    @property
    def text_len(self) -> int:
        return len(self.request.text) + len(self.new)

    def part(self, first: int, last: int) -> list[int]:
        """Returns the tokens [first, last) of the text after the round followed by the tokens drafted so far."""
        text, behind = self.request.text, [*self.new, *self.drafted]
        return [*text[first:last], *behind[max(0, first - len(text)) : max(0, last - len(text))]]

    @property
    def lags(self) -> bool:
        """True if its first pass feeds more than a round's tokens."""
        return self.num_fed > MAX_LENGTH + 1

    @property
    def num_drawn(self) -> int:
        """Tokens that its next pass draws."""
        return min(self.num_parallel, self.length - len(self.drafted))

    @property
    def expected(self) -> float:
        """Expected worth of its next pass's tokens; assumes that each is as probable as the previous tokens."""
        each = self.path ** (1.0 / len(self.drafted)) if self.drafted else FIRST_PROBABILITY
        return self.request.worth * self.path * sum(each**depth for depth in range(1, self.num_drawn + 1))

    @property
    def is_over(self) -> bool:
        return len(self.drafted) >= self.length or self.path < self.request.least_probability

    def take(self, tokens: Sequence[int], claimed: Sequence[float]) -> None:
        """Appends successive tokens up to the text's end, which the target draws in the same round anyway.

        The first token is appended even if it is not worth verifying: only then does its claim remain tested
        (`Moved.claims`).
        """
        for token, code in zip(tokens, probabilities.encode(claimed), strict=True):
            path = self.path * self.request.calibrated[code]
            if token in self.request.stop_ids or (self.drafted and path < self.request.least_probability):
                self.length = len(self.drafted)
                return
            self.path = path
            self.drafted.append(token)
            self.codes += bytes((code,))


class OwnDrafts:
    """The draft model and its KV caches, by session of the target."""

    def __init__(self, checkpoint: Checkpoint, runner: Engine) -> None:
        self.checkpoint = checkpoint
        self.runner = runner
        self.num_failures = 0
        self.pass_s = 0.0  # of one token for each session, smoothed
        self._guessed: dict[bytes, list[int]] = {}  # drafted tokens at each cache's end; the least recently used first
        self._rests_until = 0  # number of the round
        self._num_passes = 0  # of the newest round

    def add_to(self, planned: Round, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Returns the outcomes with drafts for the next round.

        If the model fails, its caches are dropped, it rests for some rounds, and outcomes are returned as they are.
        """
        self._num_passes = 0
        if not planned.draft_requests or planned.number < self._rests_until:
            return list(outcomes)
        try:
            jobs = self._jobs(planned, outcomes)
            self._draft(jobs, planned.worth_per_s)
        except Exception as error:
            self._fail(planned.number, error)
            return list(outcomes)
        found = {job.key: job for job in jobs if job.drafted}
        return [_with_draft(outcome, found.get(outcome.session_id)) for outcome in outcomes]

    def drafting(self, planned: Round, seconds: float) -> Drafting:
        """Returns a summary of the drafting in this round, the latest round of `add_to`."""
        return Drafting(seconds, self._num_passes, planned.number < self._rests_until)

    def keep(self, sessions: Container[bytes], begun: Container[bytes] = ()) -> None:
        """Frees the caches of all other sessions (ended or preempted), and of the sessions in `begun`, which
        restarted."""
        for key in [key for key in self._guessed if key not in sessions or key in begun]:
            self._forget(key)

    def _forget(self, key: bytes) -> None:
        del self._guessed[key]
        self.runner.free(key)

    def _fail(self, number: int, error: Exception) -> None:
        rests = min(RESTED_ROUNDS << min(self.num_failures, 16), MAX_RESTED_ROUNDS)
        self.num_failures += 1
        self._rests_until = number + rests
        told = "the draft model failed (%s: %s); texts continue without it; retrying after %d rounds"
        logger.error(told, type(error).__name__, error, rests, exc_info=error)
        held: BaseException | None = error
        while held is not None:  # frames of the error and of its causes hold the failed pass's tensors
            held.__traceback__, held = None, held.__cause__ or held.__context__
        for key in self._guessed:
            self.runner.pool.withdraw(key)
        self.keep(())
        if self.checkpoint.device.type == "cuda":
            torch.cuda.empty_cache()

    # -- one round -------------------------------------------------------------------------------------------------

    def _jobs(self, planned: Round, outcomes: Sequence[Outcome]) -> list[Job]:
        """Returns the drafts to make: of unfinished texts with enough memory and up-to-date caches."""
        decided = {outcome.session_id: outcome.tokens for outcome in outcomes if not outcome.failed}
        context_len, found, prefilled = self.checkpoint.context_len, list[Job](), set[bytes]()
        for request in planned.draft_requests:
            job = Job(request, decided.get(request.session_id, ()), 0, self.checkpoint.num_parallel)
            job.length = min(MAX_LENGTH, request.max_draft, request.most - len(job.new), context_len - job.text_len)
            if not job.new or job.length <= 0 or any(token in request.stop_ids for token in job.new):
                continue
            self._guessed.setdefault(job.key, [])
            upcoming = self.runner.pool.upcoming(job.key, request.prefix_scope, request.text)
            if job.key not in self.runner.pool and upcoming in prefilled:
                continue  # next round it starts from the pages that another session prefills now
            if upcoming is not None:
                prefilled.add(upcoming)
            self._rewind(job)
            job.num_fed = job.text_len - self.runner.pool.length(job.key)
            found.append(job)
        room = int(min(PREFILL, max(LEAST_PREFILL, planned.room_left)))
        return self._fitting(sorted(found, key=lambda job: job.num_fed), room)

    def _fitting(self, found: Sequence[Job], room: int) -> list[Job]:
        """Returns the jobs within this round's limits on prefill and memory; a job with much to prefill only fills its
        cache.

        found: jobs in order of tokens to prefill, so that a long prompt does not delay other sessions' drafts. room:
        tokens to prefill for those that lag behind.
        """
        reserved, jobs, kept = 0, list[Job](), {job.key for job in found}
        for job in found:
            lags = job.lags
            if lags and job.num_fed > room:
                job.num_fed, job.length = room, 0
            if job.num_fed and self._reserve(job, reserved, kept):
                room -= job.num_fed if lags else 0
                reserved += self._num_pages(job)
                jobs.append(job)
        return jobs

    def _rewind(self, job: Job) -> None:
        """Truncates the session's cache to its common prefix with the text, without the text's final token.

        A session without a cache starts from the pages of its text in the prefix cache.
        """
        pool, guessed = self.runner.pool, self._guessed.pop(job.key, [])
        self._guessed[job.key] = []  # as the most recently used
        if job.key not in pool and (hit := pool.find(job.key, job.request.prefix_scope, job.request.text)).pages:
            pool.adopt(job.key, hit)
        first = pool.length(job.key) - len(guessed)
        text = job.part(first, first + len(guessed))
        num_kept = min(first + num_common(guessed, text), job.text_len - 1)
        if pool.length(job.key) > num_kept:
            self.runner.truncate(job.key, num_kept)

    def _num_pages(self, job: Job) -> int:
        return self.runner.pool.pages_needed(job.key, job.num_fed + job.length)

    def _reserve(self, job: Job, reserved: int, kept: Container[bytes]) -> bool:
        """Returns whether memory besides reserved pages suffices for the job; evicts sessions that are not `kept`."""
        while self.runner.pool.num_free - reserved < self._num_pages(job):
            idle = next((other for other in self._guessed if other not in kept), None)
            if idle is None:
                return False
            self._forget(idle)
        return True

    @torch.inference_mode()
    def _draft(self, jobs: Sequence[Job], worth_per_s: float) -> None:
        """Drafts one depth after another, while a pass over the unfinished drafts is worth its time."""
        behind = [job for job in jobs if not job.length]
        going = [job for job in jobs if job.length]
        runs_none = bool(going) and not behind
        while behind or (going and sum(job.expected for job in going) >= worth_per_s * self.pass_s):
            started, runs_none = time.perf_counter(), False
            is_usual = not behind and all(job.drafted or not job.lags for job in going)
            self._pass([*behind, *going])
            if is_usual:  # without prefill
                self.pass_s = smoothed(self.pass_s, time.perf_counter() - started, SMOOTHING)
            behind, going = [], [job for job in going if not job.is_over]
        if runs_none:
            self.pass_s *= FORGETTING

    def _pass(self, jobs: Sequence[Job]) -> None:
        """Feeds each cache's missing tokens, and draws the next token of each session, or several after masks
        (PARD)."""
        fed = [(job, chunk) for job in jobs if (chunk := self._chunk(job)).tokens]
        if not fed:
            return
        jobs, chunks = zip(*fed, strict=True)
        self._num_passes += 1
        logits = self.runner.forward(chunks)  # [tokens to draw, vocab]
        for job, chunk in zip(jobs, chunks, strict=True):
            if job.drafted:
                self._guessed[job.key] += chunk.tokens
            self.runner.pool.publish(job.key, job.request.prefix_scope, job.request.text)
        drawn = [(job, place) for job, chunk in zip(jobs, chunks, strict=True) for place in range(chunk.num_logits)]
        if not drawn:
            return
        batch = SamplingBatch.of([job.request.sampling for job, _ in drawn], device=logits.device)
        positions = batch.tensor([job.text_len + len(job.drafted) + place for job, place in drawn], torch.int64)
        tokens = choose(logits, batch, positions, num_tokens=self.checkpoint.num_tokens)
        claimed = acceptance_probabilities(logits.softmax(-1), tokens, [place > 0 for _, place in drawn])
        numbers = [chunk.num_logits for chunk in chunks]
        for job, own, claims in zip(jobs, torch.split(tokens, numbers), torch.split(claimed, numbers), strict=True):
            job.take(own.tolist(), claims.tolist())

    def _chunk(self, job: Job) -> Chunk:
        first = self.runner.pool.length(job.key)
        last = job.text_len + len(job.drafted) if job.drafted else first + job.num_fed
        tokens, num_known = job.part(first, last), self.checkpoint.num_tokens
        if max(tokens) >= num_known:  # the target has rows for added tokens that this model lacks: nothing is drafted
            job.length = 0
            tokens = tokens[: next(at for at, token in enumerate(tokens) if token >= num_known)]
        return Chunk(job.key, tokens, job.num_drawn, num_masks=max(0, job.num_drawn - 1))


def _with_draft(outcome: Outcome, job: Job | None) -> Outcome:
    if job is None:
        return outcome
    return replace(outcome, own_tokens=tuple(job.drafted), own_codes=job.codes)
