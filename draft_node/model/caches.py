"""The draft model's KV cache of each session, and whose is evicted where it is full."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from draft_node.core.actions import Request
from draft_node.model.job import Job
from goodspeed.engine.runner import Runner

PREFILL_CHUNK = 256
"""Tokens of a prompt fed per step, so that a long one does not hold the other sessions up."""


@dataclass(slots=True)
class _Cache:
    """A session's part of the draft model's KV cache."""

    tokens: list[int] = field(default_factory=list)  # fed, in order
    num_final: int = 0  # leading tokens that no verdict can change any more
    used: int = 0  # step of its last use
    is_known: bool = False  # it was looked up whether its text begins like one that was read
    shares: bool = False  # other sessions may find what was read of it


class Caches:
    """The caches of all sessions; iterated over by session id, the oldest session first."""

    def __init__(self, runner: Runner, context_len: int) -> None:
        self._runner = runner
        self._context_len = context_len
        self._caches: dict[bytes, _Cache] = {}
        self._num_steps = 0
        self._reserved = 0  # pages that the jobs of this step will take
        self._being_read: set[bytes] = set()  # what the jobs of this step read next
        self.num_looked_up = 0  # tokens of sessions' texts when their cache was begun
        self.num_found = 0  # of these, those that were in memory already

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._caches)

    def rewind(self, job: Job) -> None:
        """Keeps the longest prefix of the cache that the job's text agrees with, at most all but its last token."""
        cache = self._caches.setdefault(job.session_id, _Cache())
        cache.shares = bool(job.propose.request.cache_salt)
        base = job.tokens
        keep = min(cache.num_final, len(base))
        limit = min(len(cache.tokens), len(base) - 1)
        while keep < limit and cache.tokens[keep] == base[keep]:
            keep += 1
        keep = min(keep, limit)
        keep = self._runner.truncate(job.session_id, keep)
        del cache.tokens[keep:]
        cache.num_final = min(keep, len(job.propose.tokens) - job.propose.num_unverified)

    def forget(self, session_id: bytes) -> None:
        """The session is over: frees its memory, of which only what others may find is kept."""
        cache = self._caches.pop(session_id, None)
        if cache is not None and not cache.shares:
            self._runner.pool.withdraw(session_id)
        self._runner.free(session_id)

    def begin_step(self) -> None:
        """From now on room is reserved for the next forward pass."""
        self._num_steps += 1
        self._reserved = 0
        self._being_read.clear()

    def is_read_by_another(self, job: Job) -> bool:
        """True if another job of this step prefills the same prefix: wait one step, and find it cached."""
        if job.session_id in self._runner.pool:
            return False
        return self._upcoming(job) in self._being_read

    def reserve(self, job: Job, jobs: Mapping[bytes, Job]) -> bool:
        """Returns whether this step's tokens fit the context and the memory; idle sessions' memory is taken first.

        Of texts written locally the older takes a younger one's: no verify node goes on with what has no room, so one
        at least has to move.

        jobs: every proposal in the making, by session.
        """
        cache = self._caches[job.session_id]
        if len(job.tokens) > self._context_len:
            return False
        if job.session_id not in self._runner.pool:
            self._begin(job, cache)
        pool = self._runner.pool
        needed = pool.pages_needed(job.session_id, len(self.lacking(job)))
        while pool.num_free - self._reserved < needed:
            idle = [key for key in self._caches if key in pool and self._gives_way(key, job, jobs)]
            if not idle:
                return False
            self._evict(min(idle, key=lambda key: self._caches[key].used))
        self._reserved += needed
        cache.used = self._num_steps
        if (upcoming := self._upcoming(job)) is not None:
            self._being_read.add(upcoming)
        return True

    def _begin(self, job: Job, cache: _Cache) -> None:
        """The session has no memory: it begins with what is kept of its text, as far as this step leaves it that."""
        pool = self._runner.pool
        hit = pool.find(job.session_id, _scope(job.propose.request), job.tokens)
        if pool.num_free - self._reserved < hit.num_unused:
            return
        if not cache.is_known:
            cache.is_known = True
            self.num_looked_up += len(job.tokens)
            self.num_found += hit.num_tokens
        if hit.pages:
            pool.adopt(job.session_id, hit)
            cache.tokens = job.tokens[: hit.num_tokens]

    def _upcoming(self, job: Job) -> bytes | None:
        return self._runner.pool.upcoming(job.session_id, _scope(job.propose.request), job.tokens)

    def _gives_way(self, session_id: bytes, to: Job, jobs: Mapping[bytes, Job]) -> bool:
        job = jobs.get(session_id)
        if job is None:
            return True
        ages = list(self._caches)
        return job.propose.local and to.propose.local and ages.index(session_id) > ages.index(to.session_id)

    def _evict(self, session_id: bytes) -> None:
        self._runner.free(session_id)
        cache = self._caches[session_id]
        self._caches[session_id] = _Cache(is_known=cache.is_known, shares=cache.shares)

    def num_cached(self, job: Job) -> int:
        """Tokens of the job's text that its cache holds."""
        return len(self._caches[job.session_id].tokens)

    def lacking(self, job: Job) -> list[int]:
        """The job's tokens that this step feeds: those that its cache lacks, up to PREFILL_CHUNK."""
        cached = self.num_cached(job)
        return job.tokens[cached : cached + PREFILL_CHUNK]

    def note_fed(self, job: Job, tokens: Sequence[int]) -> None:
        """The forward pass took these tokens of the job's text in. What no verdict can change is kept for others."""
        cache, propose = self._caches[job.session_id], job.propose
        cache.tokens += tokens
        num_final = len(propose.tokens) - propose.num_unverified
        self._runner.pool.publish(job.session_id, _scope(propose.request), job.tokens, num_final)


def _scope(request: Request) -> bytes:
    """The scope that shares with a session: its salt, or without one its own."""
    return b"salt\0" + request.cache_salt if request.cache_salt else b"session\0" + request.session_id
