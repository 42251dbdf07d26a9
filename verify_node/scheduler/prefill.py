"""Bounds the prefill of a round by its time while other sessions decode: one long prompt must not slow all texts.

A row of a prompt costs time, and more of it behind a long context, or with logits for prompt logprobs. The profile of
the forward pass knows only rows without context, if there is one at all. So finished rounds teach what rows cost beyond
that, compared with rounds that prefill nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.refined import LONGEST_S, SHORTEST_S, Refined
from goodspeed.fair.round_time import Linear
from verify_node.scheduler.round import Entry, Round
from verify_node.session.session import Session

LONGEST = 2.7
"""Longest round with prefill, in rounds of the same sessions without. Wanted are 3 at most, and rounds scatter by a
tenth. So prompts get almost two thirds of the time, and the texts beside them go on at a third of their pace."""

FIRST_CONTEXT = 1024.0
"""Cached tokens whose attention takes as long as the rest of a row, before it is measured: so for models of 5 to 135
million weights on a CPU. It is more for large ones, where the first rounds then prefill too little."""

FIRST = 1.0, 1.0 / FIRST_CONTEXT, 1.0
"""First costs of a row, of a row for each token before it, and of its logits: in rows of the profile."""

FIRST_ROWS = 32.0
"""Rows that double the time of a round, before that is measured, where there is no profile: 20 on a CPU core, hundreds
on a GPU."""

UNMEASURED = 16
"""Rounds with prefill after which one prefills nothing, so that the time of such a round stays known."""

MOST_SURPRISE = 4.0
"""Largest factor by which one round's time may differ from its prediction in what is learned from it."""

CHEAPEST = 1 / 64
"""Least that anything is found to cost, as a share of what it costs at first: from there it rises in a few rounds."""

PLAIN_SMOOTHING = 0.5


@dataclass(frozen=True, slots=True)
class Room:
    """The prefill that fits into a round, and what it costs; both in rows of the profile, without context or logits."""

    rows: float = inf
    row: float = 1.0  # of each token
    context: float = 0.0  # of each token, for each token before it
    logits: float = 0.0  # of each token whose logits are needed

    def cost_of(self, entry: Entry) -> float:
        """Returns the cost of an entry's prefill."""
        rows, context, logits = _prefilled(entry)
        return self.row * rows + self.context * context + self.logits * logits

    def most(self, left: float, start: int, has_logits: bool = False) -> float:
        """Returns the most tokens from position `start` on that cost at most `left`; infinity: no bound."""
        if left == inf:
            return inf
        each = self.row + self.logits * has_logits + self.context * start
        most = max(0.0, left) / each
        return max(0.0, left) / (each + self.context * most / 2)  # a little less than the root of the equation


UNBOUNDED = Room()
"""Nobody decodes: `RoundLimits.most_prefill` alone bounds prefill."""


class Prefill:
    """Learns what prefill costs, and bounds that of the next round."""

    def __init__(self, cost: Refined, pool: PagePool) -> None:
        """cost: its profile is used, not what it learned from all rounds, since long prompts would distort that."""
        self.room = UNBOUNDED  # of the next round
        self._pool = pool
        self._model = cost.model if cost.profiled else Linear(fixed_s=1.0, token_s=1.0 / FIRST_ROWS)
        self._scale = 1.0 if cost.profiled else 0.0  # of the model, in rounds without prefill; 0: unknown
        self._row, self._context, self._logits = FIRST  # as in `Room`
        self._num_unmeasured = 0

    def begin(self, ready: Sequence[Session], awaited: Sequence[Session] = ()) -> None:
        """Sets the room of the next round. ready: sessions that it can move. awaited: those that wait for drafts."""
        decoding = [one for one in (*ready, *awaited) if self._decodes(one)]
        if not decoding:
            self.room = self._room(inf)
        elif self._num_unmeasured >= UNMEASURED and 0 < sum(map(self._decodes, ready)) < len(ready):
            self._num_unmeasured = 0  # whatever becomes of this round
            self.room = self._room(0.0)
        else:
            number, context = len(decoding), sum(len(session.tokens) for session in decoding)
            longest_s = LONGEST * self._model.round_s(number, number, context)
            self.room = self._room(max(1, self._model.tokens_in(longest_s, number, context) - number))

    def _decodes(self, session: Session) -> bool:
        return len(session.tokens) - self._pool.length(session.session_id) <= 1

    def _room(self, rows: float) -> Room:
        return Room(rows, self._row, self._context, self._logits)

    def observe(self, done: Round, seconds: float, num_spare: float = 0.0) -> None:
        """Learns from a finished round. seconds: of the target. num_spare: rows that it computed beside its tokens."""
        if not SHORTEST_S < seconds < LONGEST_S:
            return  # a clock error must not stop a node
        num_rows = sum(entry.num_prefill for entry in done.entries)
        plain = [entry for entry in done.entries if not entry.num_prefill]
        shape = len(done.entries), sum(entry.start for entry in plain)
        usual = max(self._model.round_s(done.num_tokens - num_rows + num_spare, *shape), SHORTEST_S)
        if num_rows:
            self._num_unmeasured += bool(plain)
            self._learn(done.entries, seconds, usual, done.num_tokens - num_rows + num_spare, shape)
            return
        self._num_unmeasured = 0
        known = self._scale or seconds / usual
        self._scale = known * _bounded(seconds / usual / known) ** PLAIN_SMOOTHING

    def _learn(
        self, entries: Sequence[Entry], seconds: float, usual: float, num_decided: float, shape: tuple[int, int]
    ) -> None:
        """Corrects what prefill costs, each part by as much of the difference as it has of the predicted time.

        usual: modelled seconds of the round without its prefill, which had `num_decided` tokens.
        """
        rows, context, logits = (sum(each) for each in zip(*map(_prefilled, entries), strict=True))
        parts = self._row * rows, self._context * context, self._logits * logits
        more = self._model.round_s(num_decided + sum(parts), *shape) - usual
        if not self._scale or more <= 0.0:
            return
        measured = seconds / self._scale
        ratio = _bounded(measured / (usual + more))
        share = 1.0 - usual / max(usual + more, measured)  # of prefill, where too little was predicted as measured
        self._row, self._context, self._logits = (
            max(CHEAPEST * first, known * ratio ** (share * part / sum(parts)))
            for first, known, part in zip(FIRST, (self._row, self._context, self._logits), parts, strict=True)
        )


def _prefilled(entry: Entry) -> tuple[int, float, int]:
    """Returns an entry's rows of prefill, what they attend to, and their rows of logits."""
    num_logits = len(entry.prompt_rows.tokens) if entry.prompt_rows is not None else 0
    return entry.num_prefill, attended(entry.start, entry.num_prefill), num_logits


def attended(start: int, num_tokens: int) -> float:
    """Returns the tokens that each token of a chunk from position `start` on attends to, added up."""
    return num_tokens * (start + num_tokens / 2)


def _bounded(ratio: float) -> float:
    return min(max(ratio, 1.0 / MOST_SURPRISE), MOST_SURPRISE)
