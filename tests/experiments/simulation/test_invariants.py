"""`validate` finds every broken invariant, by the session's id and what is wrong."""

from functools import partial

import pytest

from experiments.simulation.nodes.invariants import validate
from tests.fakes import Desk, session_id
from verify_node.session.draft_tokens import DraftTokens
from verify_node.session.phase import BrokenInvariant, Phase


@pytest.fixture
def desk():
    """A session for whose draft rounds wait, and one that is new."""
    desk = Desk("a", rounds="barrier")
    desk.begin()
    desk.open(number=2)
    return desk


@pytest.mark.parametrize("name", ["tick", "know"])
def test_events_are_followed_by_a_check(desk, name):
    event = {"tick": desk.core.tick, "know": partial(desk.core.fleet.know, "own", [])}[name]
    event(desk.now)
    desk.session(2).drafts.may_draft = 1
    with pytest.raises(BrokenInvariant):
        event(desk.now)


def drafted(desk, **changes):
    """Puts a draft there as no arrival would."""
    session = desk.session()
    session.drafts.newest = DraftTokens.read(desk.honest_draft(), session.tokens)._replace(**changes)


BREAKS = {
    "a permission too soon": (
        lambda desk: setattr(desk.session(2).drafts, "may_draft", 1),
        "1 tokens may be drafted before",
    ),
    "a phase without a verdict": (lambda desk: setattr(desk.session(2), "phase", Phase.RUNNING), "its last verdict"),
    "a draft for another text": (lambda desk: drafted(desk, made_on=9), "does not follow its text"),
    "a part of a draw": (lambda desk: drafted(desk, made_on=3, proposal=b"1"), "of the ratio rule may be verified"),
    "a draft that is used up": (lambda desk: drafted(desk, made_on=3, tokens=()), "its draft is empty"),
    "a wait for nobody": (
        lambda desk: setattr(desk.session(2).drafts, "waits", True),
        "wait for a draft that is not permitted",
    ),
    "an end without a reason": (lambda desk: setattr(desk.session(), "phase", Phase.FINISHED), "it ends for None"),
    "acknowledged too much": (
        lambda desk: setattr(desk.session(), "acked", 99),
        rf"session {session_id(1).hex()} \(running\): 99 tokens of 4 are acknowledged",
    ),
    "tokens from nowhere": (lambda desk: desk.session(2).tokens.append(1), "tokens that no verdict sent"),
    "all is cached": (lambda desk: desk.core.pool.extend(session_id(1), 3), "6 tokens cached of 4"),
    "memory of nobody": (lambda desk: desk.core.pool.extend(session_id(7), 3), "memory that will not be freed"),
    "an unknown peer": (lambda desk: desk.session().move_to(b"?"), "which is not connected"),
    "an unknown client": (lambda desk: desk.core.allocator.clients.clear(), "that the allocator does not know"),
    "more than drafted": (
        lambda desk: desk.session().client.count_draft("model", 1, 2),
        "more drafted tokens were accepted",
    ),
}


@pytest.mark.parametrize(("breaks", "what"), BREAKS.values(), ids=BREAKS)
def test_what_is_wrong_is_said(desk, breaks, what):
    validate(desk.core)
    breaks(desk)
    with pytest.raises(BrokenInvariant, match=what):
        validate(desk.core)


def test_a_round_in_flight_is_looked_at(desk):
    desk.draft()
    desk.plan()
    desk.draft(alpha=0.5)
    desk.session().tokens.append(1)
    with pytest.raises(BrokenInvariant, match="session"):
        validate(desk.core)
