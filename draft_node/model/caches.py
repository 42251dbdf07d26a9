"""The draft model's KV caches by session, and eviction when memory is full."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from draft_node.core.actions import Request
from draft_node.model.job import Job
from goodspeed.engine.runner import Runner

PREFILL_CHUNK = 256
"""Most tokens prefilled per step and session, so that a long prompt does not delay the other sessions."""


@dataclass(slots=True)
class _Cache:
    """A session's part of the draft model's KV cache."""

    tokens: list[int] = field(default_factory=list)  # in the cache, in order
    num_final: int = 0  # leading tokens that no verdict can change
    used: int = 0  # step of its latest use
    is_known: bool = False  # its prefix was already looked up in the prefix cache
    shares: bool = False  # other sessions may use its cached prefix


class Caches:
    """The caches of all sessions; iterates over session ids, oldest session first."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._context_len = runner.checkpoint.context_len
        self._num_parallel = runner.checkpoint.num_parallel
        self._caches: dict[bytes, _Cache] = {}
        self._num_steps = 0
        self._reserved = 0  # pages reserved for the jobs of this step
        self._being_read: set[bytes] = set()  # hashes of the prefixes that this step's jobs prefill next
        self.num_looked_up = 0  # tokens looked up in the prefix cache
        self.num_found = 0  # of these, tokens found there

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._caches)

    def rewind(self, job: Job) -> None:
        """Truncates the cache to its longest common prefix with the job's text, without the text's final token."""
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
        """Frees a closed session's memory; pages that other sessions may share stay in the prefix cache."""
        cache = self._caches.pop(session_id, None)
        if cache is not None and not cache.shares:
            self._runner.pool.withdraw(session_id)
        self._runner.free(session_id)

    def begin_step(self) -> None:
        """Starts reserving memory for the next forward pass."""
        self._num_steps += 1
        self._reserved = 0
        self._being_read.clear()

    def is_read_by_another(self, job: Job) -> bool:
        """Returns True if another job of this step prefills the same prefix: one step later it is cached."""
        if job.session_id in self._runner.pool:
            return False
        return self._upcoming(job) in self._being_read

    def reserve(self, job: Job, jobs: Mapping[bytes, Job]) -> bool:
        """Reserves pages for this step's tokens and masks of a job. False: context or memory does not suffice.

        If memory is short, evicts idle sessions, the least recently used first. A local text also evicts younger local
        texts: without a verify node at least one text has to make progress.

        jobs: all unfinished proposals, by session.
        """
        cache = self._caches[job.session_id]
        if len(job.tokens) > self._context_len:
            return False
        if job.session_id not in self._runner.pool:
            self._begin(job, cache)
        pool = self._runner.pool
        needed = pool.pages_needed(job.session_id, len(self.lacking(job)) + self.num_masks(job))
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
        """Fills a session's empty cache from the prefix cache, if this step's reservations leave enough pages free."""
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
        """Returns how many tokens of the job's text are cached."""
        return len(self._caches[job.session_id].tokens)

    def lacking(self, job: Job) -> list[int]:
        """Returns the job's tokens that this step feeds: those not cached, at most PREFILL_CHUNK."""
        cached = self.num_cached(job)
        return job.tokens[cached : cached + PREFILL_CHUNK]

    def draws(self, job: Job) -> bool:
        """Returns True if this step feeds the last token of the job's text, after which tokens are drafted."""
        return job.length > 0 and self.num_cached(job) + len(self.lacking(job)) == len(job.tokens)

    def num_masks(self, job: Job) -> int:
        """Returns how many masks follow the tokens of this step: one less than the tokens that are drafted at once.

        None for a local text: it is what the model writes token by token.
        """
        if job.propose.local or not self.draws(job):
            return 0
        num_tokens = min(self._num_parallel, job.length - job.num_drafted, self._context_len + 1 - len(job.tokens))
        return num_tokens - 1

    def note_fed(self, job: Job, tokens: Sequence[int]) -> None:
        """Notes tokens that the forward pass cached. Publishes the final ones (`num_final`) in the prefix cache."""
        cache, propose = self._caches[job.session_id], job.propose
        cache.tokens += tokens
        num_final = len(propose.tokens) - propose.num_unverified
        self._runner.pool.publish(job.session_id, _scope(propose.request), job.tokens, num_final)


def _scope(request: Request) -> bytes:
    """Returns the scope of prefix sharing: the request's salt, or the session alone without one."""
    return b"salt\0" + request.cache_salt if request.cache_salt else b"session\0" + request.session_id
