"""A draft source of one's own in place of a draft model (docs/SOURCE.md): it drafts for one text at a time.

The draft node's n-gram drafter is also begun for each text, but drafts in the event loop. A source drafts on the model
thread.
"""

import logging
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, Protocol

from goodspeed.drafting.draft_model import DraftModel
from goodspeed.drafting.proposing import Asked, Proposed
from goodspeed.drafting.tree import Tree
from goodspeed.drafting.unfinished_proposal import Job
from goodspeed.exact.trees import BASE
from goodspeed.registry import OWN, Registry, created
from goodspeed.wire.fields import MAX_DRAFT

logger = logging.getLogger("goodspeed.draft")


class TextSource(Protocol):
    """The drafts for one text."""

    def draft(self, text: Sequence[int], drafted: Sequence[int], room: int, /) -> Any:
        """Returns at most `room` tokens in a row after `text` and `drafted`, and the probability of each.

        text: prompt and verified tokens. drafted: tokens drafted behind it before, which may still be rejected. A third
        item makes the answer a tree: the index of each token's predecessor, -1 for the end of `drafted`.
        """


class Source(Protocol):
    """Drafts for all texts of a node."""

    def begin(self, asked: Asked, /) -> TextSource:
        """Returns what drafts for a new text."""


SOURCES: Registry[Callable[[], Source]] = Registry("draft source", "goodspeed.sources", takes=OWN)


def create(name: str) -> Source:
    """Creates a source: a package's, by the name of its entry point, or a user's own, as `MODULE:CLASS` or
    `PATH.py:CLASS`. Called with names of a command line only. ConfigError if that fails."""
    SOURCES.load(name)
    return created(f"the draft source {name}", SOURCES.find(name), "begin(asked)", "docs/SOURCE.md")


class SourceDrafter(DraftModel):
    """Has a source draft for each text. Under the ratio rule nothing is drafted.

    A text for which the source failed has no drafts from then on. The step fails only if the source failed for another
    text before, and for none has worked since.
    """

    num_parallel = MAX_DRAFT  # a source is asked for a whole draft

    def __init__(self, source: Source) -> None:
        super().__init__(None)
        self._source = source
        self._texts: dict[bytes, TextSource] = {}
        self._failed: set[bytes] = set()  # sessions for whose texts it failed
        self._asked = b""  # the session of the text that it was asked for last
        self._works = True  # it has worked since it failed

    def forget(self, session_id: bytes) -> None:
        super().forget(session_id)
        self._texts.pop(session_id, None)
        self._failed.discard(session_id)

    def give_up(self, *, empty: bool = True) -> list[Proposed]:
        """Gives up after the source failed or took too long for a text, which has no drafts from then on."""
        self._failed.add(self._asked)
        return super().give_up(empty=empty)

    def abandon(self) -> list[Proposed]:
        """Gives up after the source failed for several texts; it begins the others anew."""
        self._texts.clear()
        return self.give_up()

    def step(self) -> list[Proposed]:
        """Asks for one draft, so that no text waits for another's; returns the finished proposals."""
        done: list[Job] = []
        for job in self.unfinished:
            done.append(job)
            leaf = next(iter(job.leaves(1)), None)
            if leaf is not None and job.length and job.by_match and job.session_id not in self._failed:
                self._ask(job, leaf)
                break
        return self._end(done)

    def _ask(self, job: Job, leaf: int) -> None:
        """Asks the source for one text. Raises what the source raises unless only this text may be to blame."""
        self._asked = job.session_id
        try:
            self._extend(job, leaf)
            self._works = True
        except Exception as error:  # whatever its code raises
            if not self._works:
                raise
            self._works = False
            self._failed.add(job.session_id)
            self._texts.pop(job.session_id, None)
            job.tree = Tree.of(job.propose.tree)
            logger.exception("the draft source failed for one text, which continues without drafts: %s", error)

    def _extend(self, job: Job, leaf: int) -> None:
        """Adds what the source drafts after a leaf. ValueError for what is no draft."""
        if job.session_id not in self._texts:
            self._texts[job.session_id] = self._source.begin(job.propose.request)
        deepest = min(job.propose.max_depth, job.tree.depth(leaf) + job.length)
        source, room = self._texts[job.session_id], deepest - job.tree.depth(leaf)
        tokens, claimed, *tree = source.draft(list(job.text), job.path(leaf), room)
        parents = tree[0] if tree else range(BASE, len(tokens) + BASE)
        nodes = {BASE: leaf}
        for node, (token, probability, above) in enumerate(zip(tokens, map(float, claimed), parents, strict=True)):
            if index(token) < 0 or not 0.0 <= probability <= 1.0 or not BASE <= index(above) < node:
                raise ValueError(f"token {token} of a draft has probability {probability} and follows token {above}")
            parent = nodes.get(above)
            fits = token < self.vocab_size and len(nodes) <= MAX_DRAFT
            if fits and parent is not None and job.tree.depth(parent) < deepest:
                nodes[node] = job.tree.add(index(token), probability, parent)
