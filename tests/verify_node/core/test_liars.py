"""Lies that are not refused on sight: what follows for the liar, and that others lose no more than is stated.

`docs/SECURITY.md` has the table of what each lie can cost the others.
"""

import math
from collections import Counter
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from experiments.simulation.texts.acceptance import Acceptance, Independent
from experiments.simulation.texts.draft_model import DraftModel
from goodspeed.drafting.proposing import Propose
from goodspeed.exact import trees
from goodspeed.wire.fields import MAX_DRAFT, NodeSource
from goodspeed.wire.messages import Draft, Verdict
from tests.fakes import STOP, VOCAB, Desk, expected, next_token, proposal, request_of, session_id
from tests.verify_node.answers import number_of, refusals
from verify_node.scheduler.round import Outcome, Round
from verify_node.session.session import Session

# -- found by the test of what was drawn -------------------------------------------------------------------------------


class Evident(Desk):
    """Drafts of client a that are verified by ratio are evidence against it."""

    def __init__(self, *names: str, against: float) -> None:
        super().__init__(*names, rounds="barrier")
        self.against = against
        self.rounds: list[Round] = []
        self._run, self.target.run = self.target.run, self._tell  # type: ignore[method-assign]

    def _tell(self, planned: Round) -> list[Outcome]:
        self.rounds.append(planned)
        outcomes = {one.session_id: one for one in self._run(planned)}
        for entry in planned.entries:
            if entry.num_drafted and entry.verification == "ratio":
                key = entry.session_id
                against = self.against if self.core.sessions[key].client.name == "a" else -0.1
                outcomes[key] = replace(outcomes[key], evidence=(against,))
        return [*outcomes.values()]

    def rules(self) -> dict[int, str]:
        """The rule by which each session of the last round was verified."""
        return {number_of(entry.session_id): entry.verification for entry in self.rounds[-1].entries}


def draft_all(desk: Desk) -> None:
    for session in list(desk.core.sessions.values()):
        if session.awaits_draft:
            desk.draft(session.client.name, number_of(session.session_id))


def test_a_liar_goes_on_under_match_and_nobody_else_does():
    desk = Evident("a", "b", against=8.0)
    for number, name in ((1, "a"), (2, "a"), (3, "b")):
        desk.open(name, number, verification="ratio", max_tokens=100)
    desk.open("a", 4, max_tokens=100)
    desk.round()
    assert desk.rules() == {1: "ratio", 2: "ratio", 3: "ratio", 4: "match"}
    told = []
    for _ in range(4):
        draft_all(desk)
        told += refusals(desk.round())
    [refused] = told  # once, and about one draft
    assert refused.code == "proposal"
    assert refused.session_id in (session_id(1), session_id(2))
    assert refused.what_to_do
    draft_all(desk)
    verdicts = [answer for answer in desk.round() if isinstance(answer, Verdict)]
    assert desk.rules() == {1: "match", 2: "match", 3: "ratio", 4: "match"}
    assert any(verdict.num_verified for verdict in verdicts if verdict.session_id == session_id(1))  # it still drafts
    proposals = {entry.session_id: entry.drafted.proposal for entry in desk.rounds[-1].entries}
    assert proposals[session_id(1)] is None  # not read any more
    assert proposals[session_id(3)] is not None
    for number in range(1, 5):
        text = desk.text(number)
        assert text == expected(number, max_tokens=100)[: len(text)]


def test_new_sessions_and_connections_change_nothing_about_it():
    desk = Evident("a", against=8.0)
    desk.open("a", 1, verification="ratio")
    for _ in range(5):
        desk.round()
        draft_all(desk)
    assert desk.session(1).client.suspicion.proven
    desk.hello("a", boot_id=b"another!")  # its sessions are gone with its process
    assert not desk.core.sessions
    desk.begin("a", 2, verification="ratio")
    assert desk.rules() == {2: "match"}


def test_evidence_is_kept_over_short_sessions():
    """Each session shows too little; all of them together are enough."""
    desk = Evident("a", against=3.0)
    for number in range(1, 13):
        desk.open("a", number, verification="ratio", max_tokens=3)
        for _ in range(4):
            desk.round()
            draft_all(desk)
        assert desk.session(number).finished
    assert desk.core.allocator.client("a").suspicion.proven


# -- what others can lose ----------------------------------------------------------------------------------------------


class WrongAt(Acceptance):
    """Wrong at one place of each draft, and right whenever the target goes on from that: all of it "agrees" but one."""

    def __init__(self, place: int) -> None:
        self.place = place

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        return 0.0 if on_path and offset == self.place else 1.0

    def probabilities(self, position: int, offset: int) -> float:
        return 1.0


HONEST = {"b": 0.6, "c": 0.8, "d": 0.9}
BUDGET = 24


class Neighbours(Desk):
    """Three honest clients, one session each, and one more called a, with any number; a round takes 0.1 s."""

    def __init__(self, process, num_sessions=1, *, rounds: str, source: NodeSource = "model", claims=b""):
        """process: how often the drafts of a agree; None: it never drafts. source, claims: what it says of them.

        claims: the probabilities code of each of its tokens; those of the others are their acceptance rates.
        """
        large: dict[str, Any] = {"budget": BUDGET, "num_pages": 1 << 16, "context_len": 1 << 16}
        super().__init__(rounds=rounds, max_round_tokens=400, self_draft=False, validates=False, **large)
        processes: dict[str, Acceptance | None] = {name: Independent(alpha) for name, alpha in HONEST.items()}
        models = {}
        for name, count in [*dict.fromkeys(HONEST, 1).items(), ("a", num_sessions)]:
            self.hello(name)
            for _ in range(count):
                number = len(self.core.sessions) + 1
                self.open(name, number, max_tokens=50_000)
                models[session_id(number)] = processes.get(name, process)
        self.model = DraftModel({key: each for key, each in models.items() if each is not None})
        self.withheld = {key for key, each in models.items() if each is None}
        self.source, self.claims = source, claims

    def play(self, num_rounds: int) -> tuple[float, float]:
        """Means of the honest clients' verified tokens in a round, all together, and of log goodput."""
        verified: Counter[str] = Counter()
        delivered: Counter[str] = Counter()
        for _ in range(num_rounds):
            for session in list(self.core.sessions.values()):
                self.answer(session)
            told = [one for one in self.round(0.1) if isinstance(one, Verdict)]
            for verdict in told:
                name = self.core.sessions[verdict.session_id].client.name
                verified[name] += verdict.num_verified
                delivered[name] += len(verdict.tokens)
        goodput = [max(1, delivered[name]) / num_rounds for name in HONEST]
        return sum(verified[name] for name in HONEST) / num_rounds, sum(map(math.log, goodput))

    def answer(self, session: Session) -> None:
        name = session.client.name
        tokens: tuple[int, ...] = ()
        if session.session_id not in self.withheld:
            length = min(session.drafts.may_draft, MAX_DRAFT)
            wanted = Propose(request_of(session.opened), 1, 0, tuple(session.tokens), length)
            tokens = proposal(self.model, wanted)
        probabilities = self.claims * len(tokens) if name == "a" else b""
        source: NodeSource = self.source if name == "a" else "model"
        complete = session.session_id not in self.withheld
        draft = Draft(session.session_id, 1, len(session.tokens), tokens, probabilities, source, complete=complete)
        assert not self.up(name, draft)


NUM_ROUNDS = 200


@cache
def best(rounds: str) -> tuple["Junk", tuple[float, float]]:
    """Neighbours of a client whose every token was accepted, and there at once; and what the honest ones got."""
    desk = Junk("honest", source="model", claims=b"", rounds=rounds)
    return desk, desk.play(NUM_ROUNDS)


def beside_the_best(rounds: str) -> tuple[float, float]:
    """The bound."""
    return best(rounds)[1]


@cache
def alone_together(rounds: str) -> tuple[float, float]:
    return Neighbours(None, 0, rounds=rounds).play(NUM_ROUNDS)


def check_bound(found: tuple[float, float], at_least: tuple[float, float], chance: float = 0.05) -> None:
    """Verified tokens and goodput, with some of both for chance in what is accepted."""
    assert found[0] >= at_least[0] * (1.0 - chance)
    assert found[1] >= at_least[1] - 0.15


both = pytest.mark.parametrize("rounds", ["barrier", "continuous"])


@both
def test_the_bound_is_one(rounds):
    assert beside_the_best(rounds)[0] < 0.7 * alone_together(rounds)[0]


@both
@pytest.mark.parametrize("place", [0, 1, 2, 3, 8])
def test_agreement_that_is_feigned_after_a_rejection_costs_no_more_than_an_honest_client(place, rounds):
    """The first of these would take 85 % of the budget without `AcceptanceBound`, and have one token a round for it."""
    found = Neighbours(WrongAt(place), rounds=rounds)
    check_bound(found.play(NUM_ROUNDS), beside_the_best(rounds))
    if place == 0:  # by now it is known to bring nothing
        check_bound(found.play(NUM_ROUNDS), alone_together(rounds))


@both
@pytest.mark.parametrize("source", ["model", "ngram"])
@pytest.mark.parametrize("place", [0, 2])
def test_false_probabilities_cost_no_more_than_an_honest_client(place, source, rounds):
    found = Neighbours(WrongAt(place), rounds=rounds, source=source, claims=bytes(1))
    check_bound(found.play(NUM_ROUNDS), beside_the_best(rounds))


class Junk(Neighbours):
    """Client a proposes as many wrong tokens as a draft may have: a chain, or siblings, perhaps behind a right one."""

    def __init__(self, form: str, *, source: NodeSource, claims: bytes, rounds: str) -> None:
        super().__init__(Independent(1.0), rounds=rounds, source=source, claims=claims)
        self.form = form

    def answer(self, session: Session) -> None:
        if session.client.name != "a" or self.form == "honest":
            super().answer(session)
            return
        right = next_token(session.opened.sampling.seed, session.tokens)
        wrong = [token for token in range(VOCAB) if token not in (right, STOP)]
        tokens, parents = tuple(wrong), None
        if self.form != "chain":
            tokens = ((right,) if self.form == "right first" else ()) + tokens
            parents = trees.pack([trees.BASE] * len(tokens))
        codes = self.claims * len(tokens)
        base = session.session_id, 1, len(session.tokens)
        assert not self.up("a", Draft(*base, tokens, codes, self.source, parents, complete=True))


@both
@pytest.mark.parametrize("claims", [b"", pytest.param(bytes(1), marks=pytest.mark.thorough)])
@pytest.mark.parametrize("source", ["model", "ngram"])
@pytest.mark.parametrize("form", ["chain", "siblings", "right first"])
def test_wrong_tokens_cost_no_more_than_an_honest_client(form, source, claims, rounds):
    """With probabilities or without, from the first message on, and after a time of honesty that earned trust.

    N-gram drafts do not count against the rate of the draft model before them, and a client with little goodput is
    permitted more than one with much: so trust costs the others 6 % more than the best honest client.
    """
    check_bound(Junk(form, source=source, claims=claims, rounds=rounds).play(NUM_ROUNDS), beside_the_best(rounds))
    desk = best(rounds)[0]
    hasher = desk.core.pool._hasher  # nothing in it changes
    primed = deepcopy(desk, {id(hasher): hasher})
    primed.form, primed.source, primed.claims = form, source, claims
    check_bound(primed.play(NUM_ROUNDS), beside_the_best(rounds), chance=0.08)


@both
@pytest.mark.parametrize("num_sessions", [4, 16])
def test_many_sessions_share_what_one_client_gets(num_sessions, rounds):
    check_bound(Neighbours(Independent(1.0), num_sessions, rounds=rounds).play(NUM_ROUNDS), beside_the_best(rounds))


@both
def test_distributions_that_are_none_cost_others_what_an_honest_client_does_that_is_never_right(rounds):
    """They are found out in the round, so the draft has taken its place in it: it counts as rejected."""

    def unreadable(planned: Round) -> list[Outcome]:
        outcomes = {one.session_id: one for one in run(planned)}
        for entry in planned.entries:
            key = entry.session_id
            if entry.num_drafted and desk.core.sessions[key].client.name == "a":
                outcomes[key] = Outcome(key, outcomes[key].tokens[:1], 0, 0.0, "sums to 3")
        return [*outcomes.values()]

    desk = Neighbours(Independent(1.0), rounds=rounds)
    run, desk.target.run = desk.target.run, unreadable  # type: ignore[method-assign]
    found = desk.play(NUM_ROUNDS)
    never_right = Neighbours(Independent(0.0), rounds=rounds).play(NUM_ROUNDS)
    check_bound(found, never_right)  # a first token that was right, and not verified, lets continuous rounds try more
    assert found == never_right or rounds == "continuous"
    check_bound(found, beside_the_best(rounds))
    assert desk.core.replies.refusals["proposal"] > 5


@pytest.mark.parametrize("num_sessions", [1, 8, pytest.param(64, marks=pytest.mark.thorough)])
def test_drafts_that_are_withheld_cost_others_little_where_rounds_wait_for_nobody(num_sessions):
    check_bound(Neighbours(None, num_sessions, rounds="continuous").play(NUM_ROUNDS), beside_the_best("continuous"))
