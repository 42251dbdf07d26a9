"""What the draft model's key/value memory holds of each session, and who gives way where it is full.

Knows nothing about drawing tokens or about the model's forward pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from draft_node.model.job import Job
from goodspeed.engine.runner import Runner

PREFILL_CHUNK = 256
"""Tokens of a prompt fed per step, so that a long one does not hold the other sessions up."""


@dataclass(slots=True)
class _Cache:
    """What the draft's key/value memory holds of a session."""

    tokens: list[int] = field(default_factory=list)  # fed, in order
    num_final: int = 0  # leading tokens that no verdict can change any more
    used: int = 0  # step of its last use


class Caches:
    """The caches of all sessions; iterated over by session id, the oldest session first."""

    def __init__(self, runner: Runner, context_len: int) -> None:
        self._runner = runner
        self._context_len = context_len
        self._caches: dict[bytes, _Cache] = {}
        self._num_steps = 0
        self._reserved = 0  # pages that the jobs of this step will take

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._caches)

    def rewind(self, job: Job) -> None:
        """Keeps the longest prefix of the cache that the job's text agrees with, at most all but its last token."""
        cache = self._caches.setdefault(job.session_id, _Cache())
        base = job.tokens
        keep = min(cache.num_final, len(base))
        limit = min(len(cache.tokens), len(base) - 1)
        while keep < limit and cache.tokens[keep] == base[keep]:
            keep += 1
        keep = min(keep, limit)
        del cache.tokens[keep:]
        self._runner.truncate(job.session_id, keep)
        if not job.propose.ahead:
            cache.num_final = min(keep, len(job.propose.tokens) - job.propose.num_unverified)

    def forget(self, session_id: bytes) -> None:
        """The session is over: frees its memory."""
        self._caches.pop(session_id, None)
        self._runner.free(session_id)

    def begin_step(self) -> None:
        """From now on room is reserved for the next forward pass."""
        self._num_steps += 1
        self._reserved = 0

    def reserve(self, job: Job, jobs: Mapping[bytes, Job]) -> bool:
        """Whether this step's tokens fit the context and the memory; idle sessions' memory is taken first.

        What nobody waits for takes nobody's memory, and gives way to what is awaited. Of texts written locally the
        older takes a younger one's: no verify node goes on with what has no room, so one at least has to move.

        jobs: every proposal in the making, by session.
        """
        cache = self._caches[job.session_id]
        if len(job.tokens) > self._context_len:
            return False
        pool = self._runner.pool
        needed = pool.pages_needed(job.session_id, len(self.lacking(job)))
        while pool.num_free - self._reserved < needed:
            idle = [key for key in self._caches if key in pool and self._gives_way(key, job, jobs)]
            if not idle or not job.propose.is_awaited:
                return False
            self._evict(min(idle, key=lambda key: self._caches[key].used))
        self._reserved += needed
        cache.used = self._num_steps
        return True

    def _gives_way(self, session_id: bytes, to: Job, jobs: Mapping[bytes, Job]) -> bool:
        job = jobs.get(session_id)
        if job is None or not job.propose.is_awaited:
            return True
        ages = list(self._caches)
        return job.propose.local and to.propose.local and ages.index(session_id) > ages.index(to.session_id)

    def _evict(self, session_id: bytes) -> None:
        self._runner.free(session_id)
        self._caches[session_id] = _Cache()

    def num_cached(self, job: Job) -> int:
        """Tokens of the job's text that its cache holds."""
        return len(self._caches[job.session_id].tokens)

    def lacking(self, job: Job) -> list[int]:
        """The job's tokens that this step feeds: those that its cache lacks, up to PREFILL_CHUNK."""
        cached = self.num_cached(job)
        return job.tokens[cached : cached + PREFILL_CHUNK]

    def note_fed(self, job: Job, tokens: Sequence[int]) -> None:
        """The forward pass took these tokens of the job's text in."""
        self._caches[job.session_id].tokens += tokens
