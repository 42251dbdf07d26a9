"""The matchers of a node's sessions: of each session that has a constraint, the one that follows its text.

Lost ones cost time and no text: they are made again, and read the text anew. Knows nothing about logits or rounds.
"""

from collections import OrderedDict
from collections.abc import Container, Sequence

from goodspeed.grammar.compiling import Grammars
from goodspeed.grammar.matcher import Matcher
from goodspeed.wire.generation import Constraint

MAX_MATCHERS = 1024
"""Sessions whose matchers are kept; the one that was used longest ago goes first."""


class Matchers:
    """`of` a session's constraint, and `forget`. Of one thread only."""

    def __init__(self, grammars: Grammars) -> None:
        self.grammars = grammars
        self._kept: OrderedDict[bytes, tuple[Constraint, tuple[int, ...], Matcher]] = OrderedDict()

    def of(self, session_id: bytes, constraint: Constraint, stop_ids: Sequence[int]) -> Matcher:
        """Returns the session's matcher, wherever it stands; GrammarError where the constraint does not compile.

        Nothing is compiled here for a session that holds its grammar.
        """
        kept = self._kept.get(session_id)
        if kept is None or kept[:2] != (constraint, tuple(stop_ids)):
            matcher = Matcher(self.grammars.of(session_id, constraint), constraint.after, stop_ids)
            kept = (constraint, tuple(stop_ids), matcher)
            self._kept[session_id] = kept
        self._kept.move_to_end(session_id)
        while len(self._kept) > MAX_MATCHERS:
            self._kept.popitem(last=False)
        return kept[2]

    def keep(self, sessions: Container[bytes]) -> None:
        """Forgets all other sessions."""
        for session_id in [key for key in self._kept if key not in sessions]:
            self.forget(session_id)

    def forget(self, session_id: bytes) -> None:
        """The session is over."""
        self._kept.pop(session_id, None)

    def __len__(self) -> int:
        return len(self._kept)
