"""A draft source of one's own in place of a draft model (docs/SOURCE.md): it drafts for one text at a time.

The draft node's n-gram drafter is also begun for each text, but drafts in the event loop. A source drafts on the model
thread.
"""

import logging
import reprlib
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, Protocol

from goodspeed.drafting.draft_model import DraftModel
from goodspeed.drafting.proposing import Asked, Proposed
from goodspeed.drafting.tree import Tree
from goodspeed.drafting.unfinished_proposal import UnfinishedProposal
from goodspeed.errors import first_line
from goodspeed.exact.trees import BASE
from goodspeed.registry import Registry, created
from goodspeed.wire.fields import MAX_DRAFT

logger = logging.getLogger("goodspeed.draft")

PAGE = "docs/SOURCE.md"


class TextSource(Protocol):
    """The drafts for one text."""

    def draft(self, text: Sequence[int], drafted: Sequence[int], room: int, /) -> Any:
        """Returns at most `room` tokens in a row after `text` and `drafted`, and the probability of each.

        text: prompt and verified tokens. drafted: tokens drafted beyond it before, which may still be rejected. A third
        item makes the answer a tree: the index of each token's predecessor, -1 for the end of `drafted`.
        """


class Source(Protocol):
    """Drafts for all texts of a node."""

    def begin(self, asked: Asked, /) -> TextSource:
        """Returns the object that will draft for a new text."""


SOURCES: Registry[Callable[[], Source]] = Registry("draft source", "goodspeed.sources", own="class")


def create(name: str) -> Source:
    """Creates a source: a package's, by the name of its entry point, or a user's own, as `MODULE:CLASS` or
    `PATH.py:CLASS`. Called with names of a command line only. ConfigError if that fails."""
    SOURCES.load(name)
    return created(f"the draft source {name}", SOURCES.find(name), "begin(asked)", PAGE)


class SourceDrafter(DraftModel):
    """Lets a source draft for each text. Under the ratio rule nothing is drafted.

    A text for which the source failed has no drafts from then on. A step fails only if the source fails for a second
    text without having drafted for any in between.
    """

    called = "draft source"
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
        """Ends all proposals because the source failed or took too long for a text, which gets no drafts from then on.

        Returns the proposals, empty or as far as they are drafted.
        """
        self._failed.add(self._asked)
        return super().give_up(empty=empty)

    def abandon(self) -> list[Proposed]:
        """Ends and returns all proposals, empty, after a step failed; the source begins the other texts anew."""
        self._texts.clear()
        return self.give_up()

    def step(self) -> list[Proposed]:
        """Asks for one draft, so that no text waits for another's; returns the finished proposals."""
        done: list[UnfinishedProposal] = []
        for job in self.unfinished:
            done.append(job)
            leaf = next(iter(job.leaves(1)), None)
            if leaf is not None and job.length and job.by_match and job.session_id not in self._failed:
                self._ask(job, leaf)
                break
        return self._end(done)

    def _ask(self, job: UnfinishedProposal, leaf: int) -> None:
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
            told = "the draft source failed for one text, which continues without drafts: %s: %s"
            logger.exception(told, type(error).__name__, first_line(error))

    def _extend(self, job: UnfinishedProposal, leaf: int) -> None:
        """Adds what the source drafts after a leaf. Raises what the source raises, and ValueError or TypeError for a
        malformed answer."""
        if job.session_id not in self._texts:
            self._texts[job.session_id] = _begun(self._source, job.propose.request)
        deepest = min(job.propose.max_depth, job.tree.depth(leaf) + job.length)
        source, room = self._texts[job.session_id], deepest - job.tree.depth(leaf)
        drafted = _checked(source.draft(list(job.text), job.path(leaf), room))
        nodes, extended = {BASE: leaf}, set[int]()
        for node, (token, probability, above) in enumerate(drafted):
            parent = nodes.get(above)
            fits = token < self.vocab_size and len(nodes) <= MAX_DRAFT
            if parent in extended and not job.propose.wants_alternatives:
                continue  # the verify node takes the first alternative only
            if fits and parent is not None and job.tree.depth(parent) < deepest:
                nodes[node] = job.tree.add(token, probability, parent)
                extended.add(parent)


def _begun(source: Source, asked: Asked) -> TextSource:
    """Begins a text at the source. Raises TypeError if the result has no method `draft`."""
    begun = source.begin(asked)
    if not callable(getattr(begun, "draft", None)):
        raise TypeError(
            f"begin returned {reprlib.repr(begun)}, which has no method draft(text, drafted, room); see {PAGE}"
        )
    return begun


def _checked(answer: Any) -> list[tuple[int, float, int]]:
    """Returns each drafted token with its probability and its predecessor's index. ValueError if malformed."""
    try:
        tokens, claimed, *tree = answer
        [parents] = tree or [range(BASE, len(tokens) + BASE)]
        drafted = list(zip(map(index, tokens), map(float, claimed), map(index, parents), strict=True))
    except (TypeError, ValueError, OverflowError) as error:
        wanted = "token ids, as many probabilities, and of a tree as many predecessors"
        raise ValueError(
            f"draft returned {reprlib.repr(answer)}; it must return lists: {wanted}; see {PAGE}"
        ) from error
    for node, (token, probability, above) in enumerate(drafted):
        if token < 0:
            raise ValueError(f"draft returned the token id {token}; it must be 0 or more")
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"draft returned the probability {probability}; it must lie within 0 and 1")
        if not BASE <= above < node:
            what = f"it must be the index of one before, or {BASE}"
            raise ValueError(f"draft returned the predecessor {above} for token {node}; {what}")
    return drafted
