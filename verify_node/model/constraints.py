"""Token masks of a round's sessions with a constraint, and the tokens that constraints force after the round."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.masks import Asked, Batch
from goodspeed.constraint.matcher import Matcher
from goodspeed.errors import NOT_NUMBERS, ConstraintError
from goodspeed.exact.logits.masks import Words
from verify_node.scheduler.round import Entry, Outcome, Round

Masks = Mapping[bytes, Words]
"""Allowed tokens of each row [num_drafted + 1, num_words], by session with a constraint."""


class ConstraintMasks:
    """Computes the tokens that sessions' constraints allow."""

    def __init__(self, constraints: Constraints | None) -> None:
        """constraints: for the target's tokenizer; None: no session has one."""
        self._constraints = constraints
        self._batch = Batch()
        self._num_words = 0 if constraints is None else constraints.table.num_words

    def prepare(self, planned: Round) -> Callable[[], Masks]:
        """Returns a function that makes the masks of the round's constrained entries. Call it before any other method.

        A mask has the tokens allowed after the base, and after each drafted token.
        """
        entries = [entry for entry in planned.entries if entry.opened.constraint is not None and entry.samples]
        asked = [Asked(self._matcher(entry), _output(entry), entry.drafted.tokens, entry.parents) for entry in entries]
        masks = self._batch.prepare(asked, self._num_words)
        session_ids = [entry.session_id for entry in entries]
        return lambda: dict(zip(session_ids, masks(), strict=True))

    def told(self, outcomes: Sequence[Outcome], entries: Sequence[Entry]) -> list[Outcome]:
        """Adds to the outcomes the forced tokens (match rule), or the reason why no token can follow."""
        by_session = {entry.session_id: entry for entry in entries}
        found: list[Outcome] = []
        for outcome in outcomes:
            entry = by_session[outcome.session_id]
            opened, tokens = entry.opened, outcome.tokens
            goes_on = bool(tokens) and tokens[-1] not in opened.stop_ids
            if opened.constraint is not None and outcome.failed:  # non-finite logits are not the constraint's fault
                if outcome.failed != NOT_NUMBERS and (problem := self._matcher(entry).problem):
                    outcome = replace(outcome, failed=problem, breaks_constraint=True)
            elif opened.constraint is not None and entry.verification == "match" and goes_on:
                outcome = replace(outcome, forced=self._matcher(entry).forced((*_output(entry), *tokens)))
            found.append(outcome)
        return found

    def _matcher(self, entry: Entry) -> Matcher:
        matcher = None
        if self._constraints is not None and entry.opened.constraint is not None:
            matcher = self._constraints.of(entry.session_id, entry.opened.constraint)
        if matcher is None:
            raise ConstraintError("the session has no compiled constraint; the core begins it with one, or refuses it")
        matcher.stop_at(entry.opened.stop_ids)
        return matcher


def _output(entry: Entry) -> tuple[int, ...]:
    return tuple(entry.text[len(entry.opened.prompt) :])
