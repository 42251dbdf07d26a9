"""The draft model: many sessions propose at once, one shared forward pass per drafting step.

A proposal begins by bringing the session's cache up to date: what the target decided otherwise is rewound, what it
added is fed (after a time at length 0 that can be a lot). Under the match rule the draft draws with the target's own
noise; under the ratio rule it draws from the very numbers that are sent. Proposals ahead of a verdict wait while
somebody is waiting for one of the others. What is written locally, for nobody to verify, is drawn like a draft under
the match rule. Knows nothing about sockets or verdicts. Runs on the model thread.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from math import prod

import torch
from torch import Tensor

from draft_node.core.actions import Propose, Proposed, Request
from draft_node.model.confidence import acceptance_chances
from draft_node.model.noise_ahead import noise_ahead
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.runner import Chunk, Runner
from goodspeed.exact import proposals
from goodspeed.exact.sampling import Role, SamplingBatch, choose, to_probs, uniform
from goodspeed.exact.truncation import mask_tokens
from goodspeed.wire.codec import MAX_MESSAGE_BYTES
from goodspeed.wire.messages import MAX_DRAFT

PREFILL_CHUNK = 256
"""Tokens of a prompt fed per step, so that a long one does not hold the other sessions up."""


@dataclass(slots=True)
class _Job:
    """One proposal in the making."""

    propose: Propose
    tokens: list[int]  # base and what is drafted so far
    length: int  # tokens to draft; 0 only brings the cache up to date
    started: float
    noise_seed: int  # of its session's own draws under the ratio rule
    drafted: list[int] = field(default_factory=list)
    positions: list[bytes] = field(default_factory=list)  # packed distributions, ratio rule
    chances: list[float] = field(default_factory=list)  # of being accepted, of each token drafted
    fed: int = 0  # of this step

    @property
    def session_id(self) -> bytes:
        return self.propose.request.session_id

    @property
    def by_match(self) -> bool:
        """Whether it is drawn with the target's noise; a local text always is, also under the ratio rule."""
        return self.propose.local or self.propose.request.verification == "match"

    @property
    def odds(self) -> float:
        """Probability that all of it is accepted, by the draft model's own confidence; 1 if that is not computed."""
        return prod(self.chances)

    @property
    def stopped(self) -> bool:
        """Nothing after an end of sequence is worth a place in the budget.

        Under the ratio rule the draft goes on all the same: were it done sooner for some tokens than for others, then
        a draft that is given up because it takes too long would not be given up by chance alone.
        """
        return self.by_match and bool(self.drafted) and self.drafted[-1] in self.propose.request.stop_ids


@dataclass(slots=True)
class _Cache:
    """What the draft's key/value memory holds of a session."""

    tokens: list[int] = field(default_factory=list)  # fed, in order
    num_final: int = 0  # leading tokens that no verdict can change any more
    used: int = 0  # step of its last use


class Drafter:
    """A draft model with its key/value memory; `add` proposals, then `step` until they come out."""

    def __init__(
        self, checkpoint: Checkpoint, runner: Runner, *, kind: str = "lattice", k: int = 64, min_odds: float = 0.0
    ) -> None:
        """kind, k: what is sampled from and sent under the ratio rule (`proposals.make`).

        min_odds: under the match rule a draft ends where the odds that all of it is accepted fall below; 0 is never.
        """
        self.checkpoint = checkpoint
        self.runner = runner
        self.num_tokens = checkpoint.num_tokens  # ids below it may be drafted; the target has the same tokenizer
        self.max_proposal_bytes = MAX_MESSAGE_BYTES
        self.kind = kind
        self.k = k
        self.min_odds = min_odds
        self._jobs: dict[bytes, _Job] = {}
        self._caches: dict[bytes, _Cache] = {}
        self._num_steps = 0
        self._reserved = 0  # pages that the jobs of this step will take

    @property
    def context_len(self) -> int:
        """The longest text that can be written, when no other needs memory."""
        pool = self.runner.pool
        return min(self.checkpoint.context_len, pool.num_pages * pool.page_size)

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def add(self, propose: Propose) -> None:
        """Starts a proposal; it replaces an unfinished one of the same session."""
        cache = self._caches.setdefault(propose.request.session_id, _Cache())
        length = propose.length if propose.local else min(propose.length, self._longest(propose.request))
        job = _Job(propose, list(propose.tokens), length, time.perf_counter(), _noise_seed(propose.request))
        unfinished = self._jobs.get(job.session_id)
        if unfinished is not None and unfinished.propose.ahead:
            _take_over(job, unfinished)
        self._rewind(cache, job)
        self._jobs[job.session_id] = job

    def forget(self, session_id: bytes) -> None:
        """The session is over: frees its memory."""
        self._jobs.pop(session_id, None)
        self._caches.pop(session_id, None)
        self.runner.free(session_id)

    def give_up(self) -> list[Proposed]:
        """Every proposal in the making, as an empty one: the sessions go on without drafts."""
        given_up = [_proposed(job, empty=True) for job in self._jobs.values()]
        self._jobs.clear()
        return given_up

    def abandon(self) -> list[Proposed]:
        """Gives up, after the model failed: what the cache holds is not known any more."""
        given_up = self.give_up()
        for session_id in list(self._caches):
            self.forget(session_id)
        return given_up

    @torch.inference_mode()
    def step(self) -> list[Proposed]:
        """One forward pass for every proposal in the making; gives back those that are complete.

        Those made ahead of a verdict take part while there are no others.
        """
        self._num_steps += 1
        self._reserved = 0
        jobs: list[_Job] = []
        done: list[_Job] = []
        waiting = [self._jobs[key] for key in self._caches if key in self._jobs]  # the oldest sessions first
        for job in [job for job in waiting if not job.propose.ahead] or waiting:
            (jobs if self._has_room(job) else done).append(job)
        chunks = [self._chunk(job) for job in jobs]
        sampling = [job for job, chunk in zip(jobs, chunks, strict=True) if chunk.num_logits]
        if any(chunk.tokens for chunk in chunks):
            logits = self.runner.forward(chunks)  # [len(sampling), vocab]
            self._note_fed(jobs, chunks)
            if sampling:
                self._draw(sampling, logits)
        done += [job for job in jobs if self._is_complete(job)]
        for job in done:
            del self._jobs[job.session_id]
        return [_proposed(job) for job in done]

    def _longest(self, request: Request) -> int:
        """Tokens whose distributions fit into one message."""
        if request.verification == "match":
            return MAX_DRAFT
        return self.max_proposal_bytes // proposals.position_bytes(self.kind, self.num_tokens, self.k)

    def _rewind(self, cache: _Cache, job: _Job) -> None:
        """Keeps the longest prefix of the cache that the job's text agrees with, at most all but its last token."""
        base = job.tokens
        keep = min(cache.num_final, len(base))
        limit = min(len(cache.tokens), len(base) - 1)
        while keep < limit and cache.tokens[keep] == base[keep]:
            keep += 1
        keep = min(keep, limit)
        del cache.tokens[keep:]
        self.runner.truncate(job.session_id, keep)
        if not job.propose.ahead:
            cache.num_final = min(keep, len(job.propose.tokens))

    def _has_room(self, job: _Job) -> bool:
        """Whether this step's tokens fit the context and the memory; idle sessions' memory is taken first.

        What is drafted ahead takes nobody's memory, and gives way to what is not. Of texts written locally the older
        takes a younger one's: no verify node goes on with what has no room, so one at least has to move.
        """
        cache = self._caches[job.session_id]
        if len(job.tokens) > self.checkpoint.context_len:
            return False
        pool = self.runner.pool
        job.fed = min(len(job.tokens) - len(cache.tokens), PREFILL_CHUNK)
        needed = pool.pages_needed(job.session_id, job.fed)
        while pool.num_free - self._reserved < needed:
            idle = [key for key in self._caches if key in pool and self._gives_way(key, job)]
            if not idle or job.propose.ahead:
                return False
            self._evict(min(idle, key=lambda key: self._caches[key].used))
        self._reserved += needed
        cache.used = self._num_steps
        return True

    def _gives_way(self, session_id: bytes, to: _Job) -> bool:
        job = self._jobs.get(session_id)
        if job is None or job.propose.ahead:
            return True
        ages = list(self._caches)
        return job.propose.local and to.propose.local and ages.index(session_id) > ages.index(to.session_id)

    def _evict(self, session_id: bytes) -> None:
        self.runner.free(session_id)
        self._caches[session_id] = _Cache()

    def _chunk(self, job: _Job) -> Chunk:
        cached = len(self._caches[job.session_id].tokens)
        tokens = job.tokens[cached : cached + job.fed]
        draws = job.length > 0 and cached + len(tokens) == len(job.tokens)
        return Chunk(job.session_id, tokens, int(draws))

    def _note_fed(self, jobs: Iterable[_Job], chunks: Iterable[Chunk]) -> None:
        for job, chunk in zip(jobs, chunks, strict=True):
            self._caches[job.session_id].tokens += chunk.tokens

    def _draw(self, jobs: list[_Job], logits: Tensor) -> None:
        """Draws one token for each job from logits [len(jobs), vocab], by its session's rule."""
        if any(job.propose.request.min_tokens for job in jobs):
            logits = mask_tokens(logits, [job.propose.request.banned_at(len(job.tokens)) for job in jobs])
        match = [index for index, job in enumerate(jobs) if job.by_match]
        ratio = [index for index, job in enumerate(jobs) if not job.by_match]
        if match:
            chosen = [jobs[index] for index in match]
            rows = logits if not ratio else logits[match]
            batch = _batch(chosen, logits)
            positions = batch.tensor([len(job.tokens) for job in chosen], torch.int64)
            tokens = choose(rows, batch, positions, num_tokens=self.num_tokens, noise=noise_ahead)
            _append(chosen, tokens)
            if self.min_odds:
                for job, chance in zip(chosen, acceptance_chances(rows, tokens).tolist(), strict=True):
                    job.chances.append(chance)
        if ratio:
            self._draw_from_proposals([jobs[index] for index in ratio], logits[ratio])

    def _draw_from_proposals(self, jobs: list[_Job], logits: Tensor) -> None:
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

    def _is_complete(self, job: _Job) -> bool:
        if job.length == 0:
            return len(self._caches[job.session_id].tokens) >= len(job.tokens) - 1
        return len(job.drafted) >= job.length or job.stopped or job.odds < self.min_odds


def _noise_seed(request: Request) -> int:
    """Seed of the session's own draws, from its seed and its id: sessions of one seed must not draw alike.

    The verify node tests whether a client's tokens, over all of its sessions, are drawn from the distributions it
    sends; equal draws in many sessions would look like a choice.
    """
    data = request.session_id + request.sampling.seed.to_bytes(8, "little")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1


def _take_over(job: _Job, unfinished: _Job) -> None:
    """Goes on where a proposal made ahead stands, if what it assumed came true; one token at least is left to draw.

    This is exact under the ratio rule too: its tokens were drawn with the noise of a round that will never be sent.
    """
    first = len(job.tokens) - len(unfinished.propose.tokens)
    if first < 0 or unfinished.tokens[: len(job.tokens)] != job.tokens:
        return
    taken = slice(first, first + max(0, job.length - 1))
    job.drafted = unfinished.drafted[taken]
    job.positions = unfinished.positions[taken]
    job.chances = unfinished.chances[taken]
    job.tokens += job.drafted


def _batch(jobs: list[_Job], logits: Tensor) -> SamplingBatch:
    return SamplingBatch.of([job.propose.request.sampling for job in jobs], device=logits.device)


def _append(jobs: list[_Job], tokens: Tensor) -> None:
    for job, token in zip(jobs, tokens.tolist(), strict=True):
        job.tokens.append(token)
        job.drafted.append(token)


def _proposed(job: _Job, *, empty: bool = False) -> Proposed:
    ratio = not job.by_match
    num_guesses = int(job.propose.ahead and not empty and bool(job.drafted))
    drafted = [] if empty else job.drafted[num_guesses:]
    return Proposed(
        session_id=job.session_id,
        epoch=job.propose.epoch,
        round=job.propose.round,
        tokens=tuple(drafted),
        proposal=proposals.encode(job.positions[num_guesses:]) if ratio and drafted else None,
        drafting_s=time.perf_counter() - job.started,
        guess=job.drafted[0] if num_guesses else None,
        odds=job.odds,
    )
