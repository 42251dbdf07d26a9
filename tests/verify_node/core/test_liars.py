"""Lies that are not refused on sight: what follows for the liar, and that others lose no more than is stated.

`docs/LIES.md` has the table of what each lie can cost the others.
"""

import math
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Propose
from experiments.simulation.acceptance import Acceptance, Independent
from experiments.simulation.models import DraftModel
from goodspeed.wire.handshake import Heartbeat
from goodspeed.wire.messages import Ack, Draft, Refusal, Verdict, digest
from tests.fakes import Desk, alone, make_open, request_of, session_id
from verify_node.packing.round import Round
from verify_node.rounds import late_drafts
from verify_node.rounds.outcomes import Outcome
from verify_node.session.session import Session

# -- found by the test of what was drawn -------------------------------------------------------------------------------


class Evident(Desk):
    """Drafts of client a that are verified by ratio are evidence against it."""

    def __init__(self, against: float, **options: Any) -> None:
        super().__init__(**options)
        self.against = against
        self.rounds: list[Round] = []
        run = self.target.run

        def telling(planned: Round):
            self.rounds.append(planned)
            rules = {entry.session_id: entry.verification for entry in planned.entries if entry.num_drafted}
            return [
                replace(outcome, evidence=(self.against if self.is_of_a(outcome.session_id) else -0.1,))
                if rules.get(outcome.session_id) == "ratio"
                else outcome
                for outcome in run(planned)
            ]

        self.target.run = telling  # type: ignore[method-assign]

    def is_of_a(self, key: bytes) -> bool:
        return self.core.sessions[key].client.name == "a"

    def rules(self) -> dict[int, str]:
        """The rule by which each session of the last round was verified."""
        return {int.from_bytes(entry.session_id, "big"): entry.verification for entry in self.rounds[-1].entries}


def draft_all(desk: Desk, **changes: Any) -> None:
    for session in list(desk.core.sessions.values()):
        if session.awaits_draft:
            number = int.from_bytes(session.session_id, "big")
            desk.draft(session.client.name, number, proposal=b"what was claimed", **changes)


def test_a_liar_goes_on_under_match_and_nobody_else_does():
    desk = Evident(against=8.0)
    for name in "ab":
        desk.hello(name)
    for number, name in ((1, "a"), (2, "a"), (3, "b")):
        desk.open(name, number, verification="ratio", max_tokens=100)
    desk.open("a", 4, max_tokens=100)
    desk.round()
    assert desk.rules() == {1: "ratio", 2: "ratio", 3: "ratio", 4: "match"}
    told = []
    for _ in range(4):
        draft_all(desk)
        told += [answer for answer in desk.round() if isinstance(answer, Refusal)]
    [refused] = told  # once, and about one draft
    assert refused.code == "proposal"
    assert refused.session_id in (session_id(1), session_id(2))
    assert refused.round is not None
    assert refused.what_to_do
    draft_all(desk)
    verdicts = [answer for answer in desk.round() if isinstance(answer, Verdict)]
    assert desk.rules() == {1: "match", 2: "match", 3: "ratio", 4: "match"}
    assert any(verdict.num_verified for verdict in verdicts if verdict.session_id == session_id(1))  # it still drafts
    proposals = {entry.session_id: entry.proposal for entry in desk.rounds[-1].entries}
    assert proposals[session_id(1)] is None  # not read any more
    assert proposals[session_id(3)] is not None
    for number in range(1, 5):
        text = desk.text(number)
        assert text == alone(request_of(make_open(number, max_tokens=100)))[: len(text)]


def test_new_sessions_and_connections_change_nothing_about_it():
    desk = Evident(against=8.0)
    desk.hello("a")
    desk.open("a", 1, verification="ratio")
    for _ in range(5):
        desk.round()
        draft_all(desk)
    assert desk.session(1).client.suspicion.proven
    desk.hello("a", boot_id=b"another!")  # its sessions are gone with its process
    assert not desk.core.sessions
    desk.open("a", 2, verification="ratio")
    desk.round()
    assert desk.rules() == {2: "match"}


def test_evidence_is_kept_over_short_sessions():
    """Each session shows too little; all of them together are enough."""
    desk = Evident(against=3.0)
    desk.hello("a")
    for number in range(1, 13):
        desk.open("a", number, verification="ratio", max_tokens=3)
        for _ in range(4):
            desk.round()
            draft_all(desk)
        assert desk.session(number).finished
    assert desk.core.scheduler.client("a").suspicion.proven


# -- what others can lose ----------------------------------------------------------------------------------------------


class WrongAt:
    """Wrong at one place of each draft, and right whenever the target goes on from that: all of it "agrees" but one."""

    def __init__(self, place: int) -> None:
        self.place = place

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        return 0.0 if on_path and offset == self.place else 1.0

    def odds(self, position: int, offset: int) -> float:
        return 1.0


HONEST = {"b": 0.6, "c": 0.8, "d": 0.9}
BUDGET = 24


class Neighbours(Desk):
    """Three honest clients, one session each, and one more called a, with any number; a round takes 0.1 s."""

    def __init__(self, process: Acceptance | None, num_sessions: int = 1, **options: Any) -> None:
        """process: how often the drafts of a agree; None: it never drafts."""
        limits: dict[str, Any] = {
            "budget": BUDGET,
            "max_round_tokens": 400,
            "num_pages": 1 << 16,
            "context_len": 1 << 16,
            "validates": False,
        }
        super().__init__(**(limits | options))
        processes = {name: Independent(alpha) for name, alpha in HONEST.items()} | {"a": process}
        models = {}
        for name, count in [*dict.fromkeys(HONEST, 1).items(), ("a", num_sessions)]:
            self.hello(name)
            for _ in range(count):
                number = len(self.core.sessions) + 1
                self.open(name, number, max_tokens=50_000)
                models[session_id(number)] = processes[name]
        self.model = DraftModel({key: each for key, each in models.items() if each is not None})
        self.withheld = {key for key, each in models.items() if each is None}

    def play(self, num_rounds: int) -> tuple[float, float]:
        """Means of the honest clients' drafted tokens in a round, all together, and of log goodput."""
        drafted = 0
        delivered: Counter[str] = Counter()
        for _ in range(num_rounds):
            for session in list(self.core.sessions.values()):
                self.answer(session)
            before = {session.session_id: len(session.tokens) for session in self.honest()}
            drafted += sum(len(session.draft.tokens) for session in self.honest() if session.draft)
            self.round(0.1)
            delivered.update({s.client.name: len(s.tokens) - before[s.session_id] for s in self.honest()})
        goodput = [max(1, delivered[name]) / num_rounds for name in HONEST]
        return drafted / num_rounds, sum(map(math.log, goodput))

    def honest(self) -> list[Session]:
        return [session for session in self.core.sessions.values() if session.client.name != "a"]

    def answer(self, session: Session) -> None:
        name = session.client.name
        if session.awaits_draft and session.session_id not in self.withheld:
            wanted = Propose(request_of(session.opened), 1, 0, tuple(session.tokens), session.assigned or 0)
            base = (session.last_round + 1, len(session.tokens), digest(session.tokens))
            assert not self.up(name, Draft(session.session_id, 1, *base, self.model.propose(wanted)))
        elif session.assigned == 0:
            self.up(name, Ack(session.session_id, 1, len(session.tokens)))


NUM_ROUNDS = 200


@cache
def beside_the_best() -> tuple[float, float]:
    """What the honest ones get beside a client whose every token is accepted, and there at once: the bound."""
    return Neighbours(Independent(1.0)).play(NUM_ROUNDS)


@cache
def alone_together() -> tuple[float, float]:
    return Neighbours(None, 0).play(NUM_ROUNDS)


def check_bound(found: tuple[float, float], at_least: tuple[float, float], slack: float = 0.05) -> None:
    """Lengths and goodput; slack for chance in what is accepted."""
    assert found[0] >= at_least[0] * (1 - slack)
    assert found[1] >= at_least[1] - 3 * slack


def test_the_bound_is_one():
    assert beside_the_best()[0] < 0.7 * alone_together()[0]


@pytest.mark.parametrize("place", [0, 1, 2, 3, 8])
def test_agreement_that_is_feigned_after_a_rejection_costs_no_more_than_an_honest_client(place):
    """The first of these would take 85 % of the budget without `Shown`, and have one token a round for it."""
    found = Neighbours(WrongAt(place))
    check_bound(found.play(NUM_ROUNDS), beside_the_best())
    if place == 0:  # by now it is known to bring nothing
        check_bound(found.play(NUM_ROUNDS), alone_together())


def test_distributions_that_are_none_cost_others_what_an_honest_client_does_that_is_never_right():
    """They are found out in the round, so the draft has taken its place in it: it counts as rejected."""

    def unreadable(planned: Round) -> list[Outcome]:
        entries = {entry.session_id: entry for entry in planned.entries}
        return [
            Outcome(one.session_id, one.tokens[:1], 0, 0.0, "sums to 3")
            if entries[one.session_id].num_drafted and desk.core.sessions[one.session_id].client.name == "a"
            else one
            for one in run(planned)
        ]

    desk = Neighbours(Independent(1.0))
    run, desk.target.run = desk.target.run, unreadable  # type: ignore[method-assign]
    found = desk.play(NUM_ROUNDS)
    assert found == Neighbours(Independent(0.0)).play(NUM_ROUNDS)
    check_bound(found, beside_the_best())
    assert desk.core.refusals["proposal"] > NUM_ROUNDS / 10


@pytest.mark.parametrize("num_sessions", [4, 16])
def test_many_sessions_share_what_one_client_gets(num_sessions):
    check_bound(Neighbours(Independent(1.0), num_sessions).play(NUM_ROUNDS), beside_the_best())


@pytest.mark.thorough
@pytest.mark.parametrize("num_sessions", [1, 8, 64])
def test_drafts_that_are_withheld_cost_others_little_once_they_are_late(num_sessions):
    found = Neighbours(None, num_sessions)
    while found.now < late_drafts.MOST_S:
        found.play(1)
    check_bound(found.play(NUM_ROUNDS), beside_the_best())


def test_that_a_draft_took_no_time_is_a_lie_that_changes_nothing():
    """What it took is then in the round trip: when the next one is expected stays the same."""
    desk = Desk()
    for name, number in (("a", 1), ("b", 2)):
        desk.hello(name)
        desk.open(name, number)
    desk.round()
    desk.now = 0.5
    for name, number, claimed in (("a", 1, 0.0), ("b", 2, 0.3)):
        desk.draft(name, number, drafting_s=claimed)
    lying, honest = desk.session(1), desk.session(2)
    assert lying.client.draft_s_per_token == 0.0
    assert lying.round_trip_s > honest.round_trip_s
    assert lying.assigned == honest.assigned
    assert lying.answer_s == pytest.approx(honest.answer_s)


# -- who lets others wait ----------------------------------------------------------------------------------------------


@pytest.fixture
def barrier():
    """Everybody waits for everybody: a drafts no more, b does."""
    desk = Desk(rounds="barrier", context_len=9000, num_pages=9000)
    for name, number in (("a", 1), ("b", 2)):
        desk.hello(name)
        desk.open(name, number, max_tokens=8000)
    desk.round()
    return desk


def wait_for_round(desk: Desk, limit_s: float) -> float:
    """Seconds until there is a round, as the daemon waits for it: until the core says when to look again."""
    began = desk.now
    while not desk.round():
        desk.now = max(desk.core.wake_at, desk.now + 1e-3)
        desk.core.tick(desk.now)
        for name in "ab":
            desk.up(name, Heartbeat(name.encode().rjust(8)))
        assert desk.now - began <= limit_s
    return desk.now - began


def test_a_barrier_goes_on_without_a_draft_that_never_comes(barrier):
    barrier.draft("b", 2)
    assert barrier.round() == []
    waited = wait_for_round(barrier, late_drafts.MOST_S + 1)
    assert waited >= late_drafts.MOST_S
    assert barrier.text(1) == alone(request_of(make_open(1)))[: len(barrier.text(1))]
    assert barrier.session(1).assigned == 0


def test_it_is_asked_again_ever_more_rarely_and_with_one_token(barrier):
    """Its rounds are others' time: of an hour of rounds of 10 ms they lose a minute or two."""
    waits: list[tuple[int, float]] = []
    for _ in range(700):
        if barrier.session(2).awaits_draft:
            barrier.draft("b", 2, alpha=0.0)
        barrier.up("a", Ack(session_id(1), 1, len(barrier.session(1).tokens)))
        barrier.up("b", Ack(session_id(2), 1, len(barrier.session(2).tokens)))
        assert (barrier.session(1).assigned or 0) <= (1 if waits else BUDGET)
        if (seconds := wait_for_round(barrier, late_drafts.MOST_S + 1)) > 1.0:
            waits.append((barrier.core.num_rounds, seconds))
    rounds = [number for number, _ in waits]
    gaps = [later - sooner for sooner, later in pairwise(rounds)]
    assert len(gaps) >= 3
    assert all(later > 1.5 * sooner for sooner, later in pairwise(gaps))
    assert all(seconds <= late_drafts.MOST_S + 0.1 for _, seconds in waits)


def test_a_draft_that_comes_too_late_is_refused_and_its_session_goes_on(barrier):
    late = barrier.honest_draft(1)
    barrier.draft("b", 2)
    wait_for_round(barrier, late_drafts.MOST_S + 1)
    [refused] = barrier.up("a", late)
    assert refused.code == "not_assigned"
    committed = barrier.text(1)
    assert barrier.open("a", 1, epoch=2, committed=committed, max_tokens=8000) == []
    assert barrier.session(1).client.num_late == 1
    longest = 0
    for _ in range(100):
        if barrier.session(2).awaits_draft:
            barrier.draft("b", 2)
        if barrier.session(1).awaits_draft:
            barrier.draft("a", 1)
        for name, number in (("a", 1), ("b", 2)):
            session = barrier.session(number)
            barrier.up(name, Ack(session.session_id, session.epoch, len(session.tokens)))
        wait_for_round(barrier, 0.1)
        longest = max(longest, barrier.session(1).assigned)
    assert barrier.session(1).client.num_late == 0
    assert longest > 1  # as before, since it drafts again
    assert barrier.text(1) == alone(request_of(make_open(1, max_tokens=8000)))[: len(barrier.text(1))]


def test_who_has_always_been_quick_is_waited_for_a_shorter_time(barrier):
    for _ in range(10):
        for name, number in (("a", 1), ("b", 2)):
            if barrier.session(number).awaits_draft:
                barrier.draft(name, number)
        barrier.round()
    barrier.draft("b", 2)
    assert wait_for_round(barrier, late_drafts.LEAST_S + 0.1) >= late_drafts.LEAST_S
