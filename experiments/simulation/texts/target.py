"""The target of the simulated world, which runs rounds: no tensors, no time.

It computes from what the memory really holds, row by row, so a wrong page gives a wrong text. It also refuses what no
round may do.
"""

from collections.abc import Sequence

from experiments.simulation.texts.text import draw, feed, seeded, start
from goodspeed.engine.paged.pages import PagePool
from goodspeed.exact import trees
from goodspeed.exact.proposal_bytes import certain
from verify_node.scheduler.round import Entry, Outcome, Round, RoundLimits


class BrokenRule(AssertionError):
    """A round that no round may be."""


class Target:
    """Runs rounds; raises BrokenRule when one breaks a limit or feeds what does not fit its cache."""

    def __init__(self, pool: PagePool, limits: RoundLimits, context_len: int = 1 << 30, number: int = 0) -> None:
        """number: which target it is, among those that a world has in turn."""
        self.number = number
        self.pool = pool
        self.limits = limits
        self.context_len = context_len
        self._rows: dict[int, int] = {}  # of the memory: the state after the token there, and all before it, from 0

    def run(self, planned: Round) -> list[Outcome]:
        self._check(planned)
        outcomes = []
        for entry in planned.entries:
            states = self._feed(entry)
            if entry.samples:
                outcome = _verify(entry, states)
                outcomes.append(outcome)
                if outcome.path is not None:
                    self._keep(entry, outcome.path)
        return outcomes

    def _check(self, planned: Round) -> None:
        _require(bool(planned.entries), "an empty round")
        _require(planned.num_drafted <= self.limits.budget, "the budget is exceeded")
        _require(planned.num_tokens <= self.limits.max_round_tokens, "too many tokens in a round")
        _require(len({entry.session_id for entry in planned.entries}) == len(planned.entries), "a session twice")

    def _feed(self, entry: Entry) -> list[int]:
        """Returns the states after the base and after each drafted token."""
        _require(bool(entry.tokens), "an entry feeds nothing")
        _require(self.pool.length(entry.session_id) == entry.start, "an entry begins where its cache does not end")
        _require(entry.start + len(entry.tokens) <= self.context_len, "the context is exceeded")
        self.pool.extend(entry.session_id, len(entry.tokens))  # PoolExhausted would be the planner's fault
        num_chain = len(entry.tokens) - (0 if entry.parents is None else entry.num_drafted)
        rows = self._slots(entry.session_id, range(entry.start, entry.start + len(entry.tokens)))
        state = self._rows[self._slots(entry.session_id, [entry.start - 1])[0]] if entry.start else 0
        read: list[int] = []  # states from 0
        for token in entry.tokens[:num_chain]:
            state = feed(state, token)
            read.append(state)
        lengths = [entry.start + number + 1 for number in range(num_chain)]
        num_fed = len(entry.tokens) - entry.num_drafted  # at least the base
        for parent, token in zip(entry.parents or (), entry.tokens[num_chain:], strict=True):
            read.append(feed(read[num_fed + parent], token))
            lengths.append(lengths[num_fed + parent] + 1)
        self._rows.update(zip(rows, read, strict=True))
        first = start(entry.opened.sampling.seed, self.number)
        return [seeded(read[place], first, lengths[place]) for place in range(num_fed - 1, len(read))]

    def _keep(self, entry: Entry, path: Sequence[int]) -> None:
        """The cache keeps the accepted path of a tree, and forgets its other nodes."""
        nodes = [entry.base_len + node for node in path]
        states = [self._rows[row] for row in self._slots(entry.session_id, nodes)]
        end = entry.base_len + len(path)
        self._rows.update(zip(self._slots(entry.session_id, range(entry.base_len, end)), states, strict=True))
        self.pool.truncate(entry.session_id, end)

    def _slots(self, session_id: bytes, positions: Sequence[int]) -> list[int]:
        rows: list[int] = self.pool.slots(session_id, positions).tolist()
        return rows


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenRule(otherwise)


def _verify(entry: Entry, states: list[int]) -> Outcome:
    """The match rule, and the ratio rule for drafts that are certain: it is the same. states: as of `_feed`."""
    drafted = entry.drafted.tokens
    if entry.verification == "ratio" and drafted:
        _require(entry.drafted.proposal == certain(drafted), "a proposal is not that of the drafted tokens")
    drawn = [draw(state)[0] for state in states]
    if entry.parents is not None:
        path = trees.accepted(drawn, drafted, entry.parents)
        agreement = sum(drawn[entry.parents[node] + 1] == drafted[node] for node in entry.first_choices)
        tokens = (*(drafted[node] for node in path), drawn[path[-1] + 1 if path else 0])
        return Outcome(entry.session_id, tokens, len(path), float(agreement), path=tuple(path))
    equal = [left == right for left, right in zip(drafted, drawn, strict=False)]
    num_accepted = equal.index(False) if False in equal else len(equal)
    tokens = (*drafted[:num_accepted], drawn[num_accepted])
    return Outcome(entry.session_id, tokens, num_accepted, float(sum(equal)))
