"""Chooses the drafted tokens that the next round verifies: those that are worth their time, or all permitted ones.

Every drafted token that is available when a round is packed is considered: from draft nodes, from a session's own text,
and from the verify node's draft model. The tokens that bring the most for the time that they add are verified
(`fair/selection.py`): a token's worth is w U'(X) of its client, and its probability is its draft node's claim,
calibrated by the outcomes of such claims. The other tokens are dropped, never deferred: under match a truncated draft
is exact. Under ratio the choice must not depend on the tokens themselves, so the probability of every token is the
session's acceptance rate. Where rounds are barriers, as in the paper, drafts are verified up to their permitted length.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace as replace_fields

from goodspeed.drafting.sources import OWN, is_awaited
from goodspeed.exact import trees
from goodspeed.fair.estimators import smoothed
from goodspeed.fair.policies.base import Floats
from goodspeed.fair.refined import Refined
from goodspeed.fair.selection import (
    Candidate,
    Cost,
    Ranked,
    best_sums,
    net_worth,
    path_probability,
    rank,
    take,
    take_needed,
)
from goodspeed.wire import probabilities
from verify_node.clients.client import Client
from verify_node.scheduler.prompt_lookup import PromptLookup, Wanting
from verify_node.scheduler.round import DraftRequest, Round, RoundLimits
from verify_node.session.draft_tokens import NOTHING, DraftTokens
from verify_node.session.session import SMOOTHING, Session
from verify_node.slo.needs import NONE, Needs

ALL = probabilities.LEAST
"""`least_probability` of a verify node without a bound."""

UNWAITED, SELDOM = 8, 64
"""One in UNWAITED rounds waits for no draft, to measure the gain of waiting. Once the gain is known, one in SELDOM
rounds waits for none, and one in SELDOM waits whatever the measured gain, which may have grown."""

BOUND_SHARE = 0.5
"""The bound sent to a draft node, as a share of the previous round's price. Tokens below the price of a round may be
worth the next one's, above all when they follow tokens that were accepted meanwhile. With the whole price, drafts came
too short: 32 sessions of n-gram drafts had 9 to 14 % fewer tokens/s (`experiments/LOG.md`)."""

STEP = 1 / 16
"""Least weight of the newest round; the first rounds with a number of sessions count equally."""

HELD = 16
"""Rounds after which a change of the number must have paid for itself."""


class PendingDraft(NamedTuple):
    """A draft that may be in flight, of a ready session."""

    session: Session
    num_expected: float  # additional accepted tokens if the round waits for it, net of the time that they take
    of_model: bool = False  # expects a new draft of its draft model; else an answer to a verdict

    @property
    def due_at(self) -> float:
        return self.session.drafts.timer.due_at if self.of_model else self.session.answer_due_at


MOST_STEADY = 4096
"""Most drafted tokens among which the number for every round is chosen, in about a millisecond."""


class Steady:
    """Finds the number of drafted tokens that every round verifies, where changes of a round's size take time.

    Such an engine (`Engine.change_rows`) goes on computing a size for a while, needed or not. So a round does not
    decide by its own drafts alone: the number is the one that would have brought the most worth per second in the
    recent rounds, and each round verifies its best drafted tokens up to it.
    """

    def __init__(self, change_rows: float) -> None:
        """change_rows: `Engine.change_rows`."""
        self._change_rows = change_rows
        self._gains: Floats = np.array([])  # by number of drafted tokens: their worth relative to the round without any
        self._num_sessions, self._num_rounds, self.number = 0, 0, 0
        self._is_outdated = False

    def outdate(self) -> None:
        """Makes the next round with drafts count like the first one."""
        self._is_outdated = True

    def update(self, sums: Sequence[float], alone: float, num_sessions: int, seconds: Sequence[float]) -> int:
        """Learns from the drafts of the round that is being packed; returns how many it verifies.

        More than the steady number are verified where this round alone pays for two changes of its size, as with tokens
        that a constraint forces.

        sums: worth of the best 0, 1, 2, ... drafted tokens, in each round up to the same number. alone: of the round
        without them. seconds: of a round by number of drafted tokens, without changes of its size; as many as sums.
        """
        gains, each = np.array(sums) / alone, np.array(seconds)
        has_drafts = sums[-1] > 0.0
        is_new = num_sessions != self._num_sessions or (self._is_outdated and has_drafts)
        self._is_outdated = self._is_outdated and not has_drafts
        self._num_rounds = 1 if is_new else self._num_rounds + 1
        known = self._gains if self._gains.size else gains
        self._gains = known + max(STEP, 1 / self._num_rounds) * (gains - known)
        change_s = self._change_rows * (seconds[-1] - seconds[0]) / max(1, len(seconds) - 1)
        rates = (1.0 + self._gains) / each
        best = int(rates.argmax())
        if is_new:  # its size mostly changes in any case
            self._num_sessions, self.number = num_sessions, best
        elif (rates[best] / rates[self.number] - 1.0) * HELD * seconds[self.number] > change_s:
            self.number = best
        each[self.number + 1 :] += 2 * change_s
        once = (1.0 + gains) / each
        return self.number + int(once[self.number :].argmax())


class Choice:
    """Chooses the drafted tokens of a round: those that are worth the time that they add to it, or as in the paper."""

    def __init__(
        self,
        cost: Refined,
        limits: RoundLimits,
        worth: Callable[[Client], float],
        prompt_lookup: PromptLookup | None = None,
        *,
        is_barrier: bool = False,
    ) -> None:
        """worth: of one token of a client, w U'(X). prompt_lookup: the verify node's own drafts; None: it has none.

        is_barrier: rounds verify drafts up to their permitted length.
        """
        # Of the newest round, by session: drafts without a chosen token.
        self.passed_over: Mapping[bytes, DraftTokens] = {}
        self._cost, self._limits, self._is_barrier = cost, limits, is_barrier
        self._worth = worth
        self._prompt_lookup = prompt_lookup
        # By whether draft models may draft.
        self._steady = {mode: Steady(cost.change_rows) for mode in (False, True)} if cost.change_rows else None
        self._models_draft = True
        self._owed_more: frozenset[bytes] = frozenset()  # sessions that the previous round owed more than one token
        self._drafting_s = 0.0  # of the verify node's draft model in a round, smoothed
        self._worth_per_s = 0.0  # expected in the previous round
        self._least_value = 0.0  # worth x path probability that a token needed in the previous round
        self._net = 1.0  # what an accepted drafted token brings beyond its time, smoothed

    def choose(
        self, ready: Sequence[Session], number: int, now: float, most: int | None = None, num_prefill: int = 0
    ) -> dict[bytes, DraftTokens]:
        """Returns the tokens to verify, by session; sessions without any may be left out.

        Chooses tokens owed to texts with objectives, then the most valuable while the round stays short enough.
        number: of the round to be packed. most: drafted tokens that promises leave room for; None: no bound but the
        budget. num_prefill: tokens that the round is expected to prefill.
        """
        if self._is_barrier:
            return {one.session_id: of_draft(one).cut(one.drafts.may_draft) for one in ready}
        needs = self._needs(ready, now)
        self._owed_more = needs.owed_more
        worths = self._worths(ready)
        drafted = self._drafted(ready, worths)
        candidates = [_candidate(session, one, worths[session.client.name]) for session, one in drafted]
        turn = number % max(1, len(drafted))  # so that ties are not always won by the same sessions
        drafted, candidates = drafted[turn:] + drafted[:turn], candidates[turn:] + candidates[:turn]
        ranked = {k: rank(one.odds, one.parents) for k, one in enumerate(candidates) if one.parents is not None}
        num_drafted = sum(len(one.tokens) for _, one in drafted)
        budget = max(0, min(self._limits.budget, self._limits.max_round_tokens - len(ready), num_drafted))
        budget = budget if most is None else min(budget, most)
        if needs.owed_more:
            candidates = self._with_needs(candidates, ranked, drafted, needs, budget)
        most_steady = 0 if self._steady is None else min(self._limits.budget, MOST_STEADY)
        seconds = self._seconds(ready, max(budget, most_steady) + 1, num_prefill)
        alone = sum(worths[session.client.name] for session in ready)
        first, _ = take_needed(candidates, budget, alone, ranked)
        longest, cost = max(sum(first.counts), needs.most_drafted(seconds, budget)), Cost(seconds.__getitem__)
        if self._steady is not None and alone > 0.0 and not num_prefill:  # else its size changes in any case
            sums = best_sums(candidates, most_steady, ranked)
            num_steady = self._steady[self._models_draft].update(sums, alone, len(ready), seconds[: most_steady + 1])
            longest, cost = max(sum(first.counts), min(longest, num_steady)), Cost()
        counts, value = take(candidates, first, longest, cost, ranked)
        num_chosen = sum(counts)
        self._worth_per_s = value / seconds[num_chosen]
        self._least_value = self._worth_per_s * (seconds[num_chosen + 1] - seconds[num_chosen])
        if value > alone > 0.0:
            self._net = smoothed(self._net, net_worth(alone, value, seconds[0] / seconds[num_chosen]), SMOOTHING)
        unused = (pair for pair, count in zip(drafted, counts, strict=True) if not (count or pair[1].is_certain))
        self.passed_over = {session.session_id: one for session, one in unused}
        return {
            session.session_id: one.pick(sorted(ranked[k].nodes[: counts[k]])) if k in ranked else one.cut(counts[k])
            for k, (session, one) in enumerate(drafted)
        }

    def least_probability(self, session: Session) -> int:
        """Code of the path probability below which this session's draft node need not draft.

        Half of the previous round's price; the floor for sessions behind their objectives.
        """
        if not self._worth_per_s:  # nothing was priced yet
            return ALL
        price = self._price(session, self._worth(session.client))
        return probabilities.code(max(probabilities.FLOOR, BOUND_SHARE * price))

    def owes_more(self, session: Session) -> bool:
        """True if the previous round owed this session more than the token that every round brings."""
        return session.session_id in self._owed_more

    def request_drafts(self, planned: Round, sessions: Mapping[bytes, Session]) -> Round:
        """Adds what the verify node's draft model shall draft for: sessions without a draft of a draft node's model."""
        entries = [one for one in planned.entries if one.samples and not is_awaited(one.source)]
        wanting = [session for session in (sessions[one.session_id] for one in entries) if session.allows_own]
        worths = self._worths(wanting)
        calibrated = {one.client.name: one.client.calibration(OWN).by_code for one in wanting}
        requests = [self._draft_request(one, worths[one.client.name], calibrated[one.client.name]) for one in wanting]
        return replace_fields(planned, draft_requests=tuple(requests), worth_per_s=self._worth_per_s)

    def _draft_request(self, session: Session, worth: float, calibrated: tuple[float, ...]) -> DraftRequest:
        return DraftRequest(
            session.opened,
            session.tokens,
            most=session.limit - len(session.tokens) - 1,
            worth=worth,
            calibrated=session.drafts.corrected(OWN, calibrated),
            least_probability=max(probabilities.FLOOR, self._price(session, worth)),
            prefix_scope=session.prefix_scope if session.shares else b"",
        )

    def note_drafting(self, seconds: float) -> None:
        """Records how long the verify node's draft model drafted in a round."""
        self._drafting_s = smoothed(self._drafting_s, seconds, SMOOTHING)

    def turn_to(self, models_draft: bool, *, is_trial: bool) -> None:
        """Notes whether draft models may draft in the rounds that follow.

        A trial learns its steady number anew: the known one may be of other texts. Each mode has a steady number of its
        own: else rounds without draft models would teach the others that drafts bring nothing.
        """
        if models_draft != self._models_draft and is_trial and self._steady is not None:
            self._steady[models_draft].outdate()
        self._models_draft = models_draft

    def pending_drafts(self, ready: Sequence[Session], number: int) -> list[PendingDraft]:
        """Returns the drafts of ready sessions that may be in flight. number: of the round to be packed."""
        if self._is_barrier or number % SELDOM == 0:
            return []
        pending = [(one, one.client.answer_gain, False) for one in ready if one.expects_answer]
        pending += [(one, one.client.model_gain, True) for one in ready if one.expects_model]
        if not pending or (number % UNWAITED == 0 and not all(gain.is_known for _, gain, _ in pending)):
            return []
        worths = self._worths(ready)
        mean = sum(worths[session.client.name] for session in ready) / len(ready)
        most = self._limits.budget / len(ready)  # no session holds up others for more than an equal part of the budget
        is_tried = number % SELDOM == 1
        brings = [most if is_tried else self._net * min(most, gain.tokens) for _, gain, _ in pending]
        return [
            PendingDraft(session, tokens * worths[session.client.name] / mean, of_model)
            for tokens, (session, _, of_model) in zip(brings, pending, strict=True)
        ]

    def keep(self, open_sessions: Container[bytes]) -> None:
        if self._prompt_lookup is not None:
            self._prompt_lookup.keep(open_sessions)

    def _price(self, session: Session, worth: float) -> float:
        """Path probability below which a token was not worth its time in the previous round."""
        return 0.0 if self.owes_more(session) else self._least_value / worth

    def _needs(self, ready: Sequence[Session], now: float) -> Needs:
        """Returns the drafted tokens owed to sessions of this round."""
        deadlines = [session.deadline for session in ready if session.deadline is not None]
        if not deadlines:
            return NONE
        weights = {session.client.name: session.client.weight for session in ready}
        context = sum(len(session.tokens) for session in ready)
        return Needs(deadlines, weights, float(self._cost.round_s(len(ready), len(ready), context)), now)

    def _worths(self, ready: Sequence[Session]) -> dict[str, float]:
        """Returns the worth of one token of each client, by name."""
        clients = {session.client.name: session.client for session in ready}
        return {name: self._worth(client) for name, client in clients.items()}

    def _drafted(self, ready: Sequence[Session], worths: Mapping[str, float]) -> list[tuple[Session, DraftTokens]]:
        """Returns all available drafted tokens, of each session its draft node's or the verify node's: the better ones.

        A session's own text is looked up only if its draft node sent no draft.
        """
        found: list[tuple[Session, DraftTokens]] = []
        wanting: list[Wanting] = []
        for session in ready:
            if session.takes_drafts:
                drafted = _better(session, of_draft(session), session.drafts.own)
                if drafted.tokens:
                    found.append((session, drafted))
                lacks_draft = not drafted.tokens or drafted.source == OWN
                if lacks_draft and self._prompt_lookup is not None and session.allows_ngrams:
                    worth = worths[session.client.name]
                    wanting.append(Wanting(session, worth, self._price(session, worth)))
        if self._prompt_lookup is not None:
            texts = dict(self._prompt_lookup.draft(wanting))
            found = [(session, _better(session, one, texts.pop(session, None))) for session, one in found]
            found += texts.items()
        return [(session, one) for session, one in found if one.tokens]

    def _with_needs(
        self,
        candidates: Sequence[Candidate],
        ranked: Mapping[int, Ranked],
        drafted: Sequence[tuple[Session, DraftTokens]],
        needs: Needs,
        budget: int,
    ) -> list[Candidate]:
        """Returns the candidates with the tokens owed to their texts."""
        keys = [session.session_id for session, _ in drafted]
        likely = {key: path_probability(candidates[k], ranked.get(k)) for k, key in enumerate(keys)}
        needed = needs.of_drafts(likely, budget)
        return [replace(one, need=needed.get(key, 0.0)) for one, key in zip(candidates, keys, strict=True)]

    def _seconds(self, ready: Sequence[Session], num_drafted: int, num_prefill: int) -> list[float]:
        """Returns the modelled seconds of a round with these sessions, by number of drafted tokens verified.

        The time of prefill is left out, since it takes place whatever is drafted. But beside prefill a pass may be
        compute-bound, so that a drafted token costs more.
        """
        num_sessions, context = len(ready), sum(len(session.tokens) for session in ready)
        num_tokens = np.arange(num_sessions, num_sessions + num_drafted + 1)
        read = self._cost.context_tokens(context, num_tokens, num_sessions)
        found = self._cost.round_s(num_tokens + num_prefill, num_sessions, read)
        if num_prefill:
            found = found - found[0] + self._cost.round_s(num_sessions, num_sessions, context)
        seconds: list[float] = (found + self._drafting_s).tolist()
        return seconds


def of_draft(session: Session) -> DraftTokens:
    """Returns the rest of the session's newest draft, up to the text's limit; of a tree, all remaining tokens."""
    drafted = session.drafts.newest
    if drafted is None or not session.allows_drafts_of(drafted.source):
        return NOTHING
    if session.verification == "match" and drafted.proposal is not None:  # its client was found to lie since it came
        drafted = drafted._replace(proposal=None)
    return drafted if drafted.parents is not None else drafted.cut(session.max_length)


def _better(session: Session, drafted: DraftTokens, other: DraftTokens | None) -> DraftTokens:
    """Returns the draft of which more tokens will be accepted."""
    if other is None or not other.tokens:
        return drafted
    other = other.cut(session.max_length)
    if not drafted.tokens:
        return other
    return other if _num_expected(session, other) > _num_expected(session, drafted) else drafted


def _candidate(session: Session, drafted: DraftTokens, worth: float) -> Candidate:
    """Returns a draft as a candidate of the selection. worth: of one token."""
    most = None if drafted.parents is None else min(session.max_length, trees.MAX_NODES)  # each takes a position
    return Candidate(_calibrated_probabilities(session, drafted), drafted.parents, worth, max_nodes=most)


def _calibrated_probabilities(session: Session, drafted: DraftTokens) -> list[float]:
    """Returns each token's calibrated probability given its predecessors, for use under the session's rule."""
    if drafted.is_certain:
        return [1.0] * len(drafted.tokens)
    if session.verification == "ratio" or not drafted.codes:
        return [session.acceptance_rate] * len(drafted.tokens)
    if drafted.parents is not None:
        return _probabilities_in_tree(session, drafted, drafted.parents)
    return session.drafts.calibrated(drafted.source, drafted.codes)


def _num_expected(session: Session, drafted: DraftTokens) -> float:
    """Returns how many of a draft's tokens will be accepted, by their calibrated probabilities."""
    candidate = Candidate(_calibrated_probabilities(session, drafted), parents=drafted.parents)
    ranked = rank(candidate.odds, candidate.parents) if candidate.parents is not None else None
    return float(sum(path_probability(candidate, ranked)))


def _probabilities_in_tree(session: Session, drafted: DraftTokens, parents: tuple[int, ...]) -> list[float]:
    """`_calibrated_probabilities` for a tree. Siblings exclude each other, so their probabilities sum to at most 1.

    No alternative is likelier than the first choice.
    """
    found = session.drafts.calibrated(drafted.source, drafted.codes)
    others = trees.alternatives(parents)
    claimed = session.drafts.calibrated("alternative", bytes([drafted.codes[node] for node, _ in others]))
    left: dict[int, float] = {}  # remaining probability, by first choice, after it and its alternatives so far
    for (node, chosen), one in zip(others, claimed, strict=True):
        room = left.get(chosen, 1.0 - found[chosen])
        found[node] = max(0.0, min(one, found[chosen], room))
        left[chosen] = room - found[node]
    return found
