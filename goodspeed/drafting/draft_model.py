"""A draft model: its unfinished proposals, and what their constraints allow."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from goodspeed.constraint.compiling import Constraints
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.unfinished_proposal import UnfinishedProposal
from goodspeed.wire.fields import MAX_CONTEXT, MAX_DRAFT

if TYPE_CHECKING:  # torch
    from goodspeed.drafting.caches import Caches


class DraftModel(ABC):
    """Base of what drafts on a model thread: `add` proposals, then `step` until they are complete.

    All methods run on that thread.
    """

    called = "draft model"  # in the log
    max_proposal_bytes = 0  # longest distributions of one proposal under the ratio rule; 0: it drafts nothing there
    num_parallel = 1  # tokens drafted in one forward pass
    context_len = MAX_CONTEXT  # tokens of the longest text
    vocab_size = 1 << 31  # of the target: drafted ids are below it
    caches: "Caches | None" = None  # None: another process has them

    def __init__(self, constraints: Constraints | None) -> None:
        """constraints: compiler for structured output; None: drafts ignore constraints."""
        self.constraints = constraints
        self._jobs: dict[bytes, UnfinishedProposal] = {}

    def add(self, propose: Propose) -> None:
        """Starts a proposal, which replaces an unfinished one of the same session."""
        self._begin(UnfinishedProposal(propose, min(propose.length, MAX_DRAFT)))

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def forget(self, session_id: bytes) -> None:
        """Drops the state of a closed session."""
        self._jobs.pop(session_id, None)

    @abstractmethod
    def step(self) -> list[Proposed]:
        """Goes on with every unfinished proposal; returns those that are complete."""

    @property
    def unfinished(self) -> Collection[UnfinishedProposal]:
        return self._jobs.values()

    def give_up(self, *, empty: bool = True) -> list[Proposed]:
        """Ends all unfinished proposals; returns them, empty or as far as they are drafted."""
        given_up = [job.proposed(empty=empty) for job in self._jobs.values()]
        self._jobs.clear()
        return given_up

    def abandon(self) -> list[Proposed]:
        """Ends and returns all proposals, empty, after a step failed."""
        return self.give_up()

    def close(self) -> None:  # noqa: B027, most have nothing to release
        """Releases resources that would outlive the process."""

    def _begin(self, job: UnfinishedProposal) -> None:
        if (replaced := self._jobs.get(job.session_id)) is not None:
            job.take_over(replaced)
        self._jobs[job.session_id] = job

    def _end(self, done: Sequence[UnfinishedProposal]) -> list[Proposed]:
        """Removes complete proposals, and returns them."""
        for job in done:
            del self._jobs[job.session_id]
        return [job.proposed() for job in done]

    def _allowed(self, job: UnfinishedProposal, path: Sequence[int]) -> NDArray[np.int32] | None:
        """Returns the bit mask of what may follow a job's text and these drafted tokens [1, num_words]; None: anything.

        The verify node applies its own masks, so that a missing mask here only costs acceptance.
        """
        request = job.propose.request
        if self.constraints is None or request.constraint is None:
            return None
        matcher = self.constraints.of(request.session_id, request.constraint)
        if matcher is None:
            return None
        matcher.stop_at(request.stop_ids)
        return matcher.allowed([*job.text[len(request.prompt) :], *path])
