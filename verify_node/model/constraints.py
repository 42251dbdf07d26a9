"""Masks of a round's sessions with a constraint, from what is drafted; and what their constraints force afterwards.

The matchers of sessions are kept here, on the model thread, as long as the session has key/value memory.
"""

from collections.abc import Callable, Container, Mapping, Sequence

from msgspec.structs import replace

from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.masks import Asked, Batch, Matchers
from goodspeed.constraint.matcher import Matcher
from goodspeed.errors import NOT_NUMBERS, ConstraintError
from goodspeed.exact.masks import Words
from verify_node.scheduler.round import Entry, Outcome, Round

Masks = Mapping[bytes, Words]
"""By session with a constraint: what each of its rows may draw [num_drafted + 1, num_words]."""


class ConstraintMasks:
    """Masks of what the constraints of sessions allow."""

    def __init__(self, constraints: Constraints | None) -> None:
        """constraints: of the target's tokenizer; None: no session has one."""
        self._matchers = None if constraints is None else Matchers(constraints)
        self._batch = Batch()
        self._num_words = 0 if constraints is None else constraints.table.num_words

    def prepare(self, planned: Round) -> Callable[[], Masks]:
        """Returns what makes the masks of the round's entries with a constraint; no other method is called until then.

        Of each of them that is what may be drawn after the base and after each drafted token.
        """
        entries = [entry for entry in planned.entries if entry.constraint is not None and entry.samples]
        asked = [Asked(self._matcher(entry), _output(entry), _drafted(entry), entry.parents) for entry in entries]
        masks = self._batch.prepare(asked, self._num_words)
        session_ids = [entry.session_id for entry in entries]
        return lambda: dict(zip(session_ids, masks.make(), strict=True))

    def told(self, outcomes: Sequence[Outcome], entries: Sequence[Entry]) -> list[Outcome]:
        """Returns the outcomes with what must follow, under the match rule, and with why nothing can."""
        by_session = {entry.session_id: entry for entry in entries}
        found: list[Outcome] = []
        for outcome in outcomes:
            entry = by_session[outcome.session_id]
            if outcome.failed:  # logits that are no numbers are no constraint's fault
                if outcome.failed != NOT_NUMBERS and (problem := self.problem(entry)):
                    outcome = replace(outcome, failed=problem, breaks_constraint=True)
            elif entry.verification == "match":
                outcome = replace(outcome, forced=self.forced(entry, outcome.tokens))
            found.append(outcome)
        return found

    def forced(self, entry: Entry, tokens: Sequence[int]) -> tuple[int, ...]:
        """Returns what the constraint says must follow the entry's text and these tokens; () where nothing must."""
        if entry.constraint is None or not tokens or tokens[-1] in entry.stop_ids:
            return ()
        return self._matcher(entry).forced((*_output(entry), *tokens))

    def problem(self, entry: Entry) -> str:
        """Returns why nothing may follow the entry's text or draft."""
        return "" if entry.constraint is None else self._matcher(entry).problem

    def keep(self, sessions: Container[bytes]) -> None:
        """Forgets all other sessions."""
        if self._matchers is not None:
            self._matchers.keep(sessions)

    def _matcher(self, entry: Entry) -> Matcher:
        if self._matchers is None or entry.constraint is None:
            raise ConstraintError("no constraints are served here; the core refuses sessions with a constraint")
        return self._matchers.of(entry.session_id, entry.constraint, entry.stop_ids)


def _drafted(entry: Entry) -> tuple[int, ...]:
    return entry.tokens[len(entry.tokens) - entry.num_drafted :]


def _output(entry: Entry) -> tuple[int, ...]:
    return entry.text[entry.prompt_len :]
