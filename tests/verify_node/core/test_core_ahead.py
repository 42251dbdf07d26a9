"""Drafts made ahead of a verdict at the verify node: taken without a round trip, or dropped and not counted."""

import pytest

from draft_node.core.actions import Propose
from goodspeed.exact.positions import HEADER
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import Ack, Refusal, Sampling, digest
from tests.fakes import VOCAB, Desk, alone, make_open, next_token, propose, replace_message, request_of, session_id
from verify_node.session.session import AHEAD_SMOOTHING


@pytest.fixture
def desk():
    """Session 1 of client a is expected to draft."""
    desk = Desk(policy="fixed", budget=4)
    assert isinstance(desk.hello("a"), Welcome)
    desk.open()
    desk.round()
    assert desk.session().assigned == 4
    return desk


def ahead_of(desk, draft, *, guess=None, length=4, **changes):
    """The draft that follows this one and its own guess, by default the right one."""
    session = desk.session()
    text = [*session.tokens, *draft.tokens]
    text.append(next_token(session.opened.sampling.seed, text) if guess is None else guess)
    wanted = Propose(request_of(session.opened), session.epoch, 0, tuple(text), length)
    return replace_message(
        draft,
        round=draft.round + 1,
        base_len=len(text),
        base_digest=digest(text),
        tokens=propose(wanted, 1.0),
        assumes=True,
        **changes,
    )


def expected(num_tokens):
    return alone(request_of(make_open()))[:num_tokens]


def test_what_came_true_takes_part_in_the_very_next_round(desk):
    draft = desk.honest_draft()
    ahead = ahead_of(desk, draft)
    assert desk.up("a", draft) == desk.up("a", ahead) == []
    [first] = desk.round()
    [second] = desk.round()
    assert (first.round, first.num_accepted, first.dropped) == (0, 4, None)
    assert (second.round, second.base_len, second.num_verified, second.num_accepted) == (1, 9, 4, 4)
    assert desk.text() == expected(11)


@pytest.mark.parametrize("moment", ["before its draft", "in flight", "after the verdict"])
def test_it_may_come_at_any_moment(desk, moment):
    draft = desk.honest_draft()
    ahead = ahead_of(desk, draft)
    if moment == "before its draft":
        desk.up("a", ahead)
        assert desk.round() == []
    desk.up("a", draft)
    planned = desk.core.plan(desk.now)
    if moment == "in flight":
        desk.up("a", ahead)
    [first] = desk.finish(planned)
    if moment == "after the verdict":
        assert desk.round() == []
        desk.up("a", ahead)
    assert first.dropped is None
    [second] = desk.round()
    assert (second.round, second.num_accepted) == (1, 4)
    assert desk.text() == expected(11)


def test_what_did_not_come_true_is_dropped_unverified_and_uncounted(desk):
    draft = desk.honest_draft()
    desk.up("a", draft)
    desk.up("a", ahead_of(desk, draft, guess=VOCAB - 1))
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.num_accepted, verdict.next_length, verdict.dropped) == (4, 4, 4, 1)
    acceptance = desk.session().acceptance.value
    assert desk.round() == []  # an ordinary draft is awaited
    assert desk.session().acceptance.value == acceptance
    assert not desk.core.refusals
    desk.draft(round=2)
    [verdict] = desk.round()
    assert (verdict.round, verdict.dropped) == (2, None)
    assert desk.text() == expected(11)


def test_what_comes_too_late_is_dropped_without_a_word(desk):
    draft = desk.honest_draft()
    wrong = ahead_of(desk, draft, guess=VOCAB - 1)
    desk.up("a", draft)
    desk.round()
    assert desk.up("a", wrong) == desk.up("a", wrong) == []
    assert desk.session().ahead is desk.session().draft is None
    assert not desk.core.refusals
    desk.draft(round=2)
    [verdict] = desk.round()
    assert (verdict.round, verdict.dropped) == (2, None)


def test_a_rejected_draft_leaves_nothing_to_hope_for(desk):
    draft = replace_message(desk.honest_draft(), tokens=(VOCAB - 1,) * 4)
    ahead = ahead_of(desk, draft)
    desk.up("a", draft)
    desk.up("a", ahead)
    [verdict] = desk.round()
    assert (verdict.num_accepted, verdict.dropped) == (0, 1)
    assert desk.up("a", ahead) == []  # repeated, and longer than the text still
    desk.draft(round=2)
    desk.round()
    assert desk.text() == expected(len(desk.text()))


@pytest.mark.parametrize("late", [False, True])
def test_it_is_cut_to_what_is_assigned(desk, late):
    draft = desk.honest_draft()
    ahead = ahead_of(desk, draft)
    desk.up("a", draft)
    if not late:
        desk.up("a", ahead)
    desk.hello("b")
    desk.open("b", 2)  # now each gets two
    desk.round()
    if late:
        desk.up("a", ahead)
    assert desk.session().assigned == 2
    assert desk.session().draft == replace_message(ahead, tokens=ahead.tokens[:2])
    verdict = next(verdict for verdict in desk.round() if verdict.session_id == session_id(1))
    assert (verdict.round, verdict.num_verified, verdict.num_accepted) == (1, 2, 2)


def test_its_odds_are_cut_with_it(desk):
    draft = desk.honest_draft()
    desk.up("a", draft)
    desk.up("a", ahead_of(desk, draft, odds=bytes(range(4)), num_ngram=3))
    desk.hello("b")
    desk.open("b", 2)
    desk.round()
    assert desk.session().draft.odds == bytes(range(2))


def test_its_distributions_are_cut_with_it():
    desk = Desk(policy="fixed", budget=4)
    desk.hello()
    desk.open(verification="ratio")
    desk.round()
    positions = [HEADER.pack(3, 1) + bytes([token, 0, 1, 0]) for token in range(4)]
    draft = desk.honest_draft()
    desk.up("a", draft)
    desk.up("a", ahead_of(desk, draft, proposal=b"".join(positions)))
    desk.hello("b")
    desk.open("b", 2)
    desk.round()
    assert desk.session().draft.proposal == b"".join(positions[:2])


def test_the_second_replaces_the_first_and_never_the_other_way_round(desk):
    draft = desk.honest_draft()
    first, second = ahead_of(desk, draft), ahead_of(desk, draft, length=2)
    second = replace_message(second, round=2)
    desk.up("a", draft)
    for message in (first, second, first):
        assert desk.up("a", message) == []
    desk.round()
    [verdict] = desk.round()
    assert (verdict.round, verdict.num_verified) == (2, 2)


def test_two_that_overtook_each_other_are_both_taken(desk):
    """Both came after their verdict; were the newer one in the older one's way, the session would stand still."""
    draft = desk.honest_draft()
    desk.up("a", draft)
    desk.round()
    first = replace_message(desk.honest_draft(), assumes=True)
    desk.up("a", ahead_of(desk, first, length=2))
    assert desk.round() == []
    desk.up("a", first)
    [verdict] = desk.round()
    assert (verdict.round, verdict.dropped) == (1, None)
    [verdict] = desk.round()
    assert (verdict.round, verdict.num_accepted) == (2, 2)


def test_length_0_drops_it(desk):
    draft = desk.honest_draft()
    desk.up("a", draft)
    desk.up("a", ahead_of(desk, draft))
    desk.core.scheduler.budget = 0
    [verdict] = desk.round()
    assert (verdict.next_length, verdict.dropped) == (0, 1)
    [verdict] = desk.round()
    assert (verdict.round, verdict.tokens) == (None, expected(7)[6:])


def test_the_end_drops_it():
    desk = Desk(policy="fixed", budget=4)
    desk.hello()
    desk.open(max_tokens=6)
    desk.round()
    draft = desk.honest_draft()
    desk.up("a", draft)
    desk.up("a", ahead_of(desk, draft))
    [verdict] = desk.round()
    assert (verdict.finish_reason, verdict.dropped) == ("length", 1)
    assert desk.text() == expected(6)


def test_opened_again_it_is_gone(desk):
    draft = desk.honest_draft()
    ahead = ahead_of(desk, draft)
    desk.up("a", draft)
    desk.up("a", ahead)
    desk.open(epoch=2, committed=expected(1))
    assert desk.session().ahead is None
    [answer] = desk.up("a", ahead)
    assert answer.code == "stale_epoch"


def test_it_acknowledges_nothing(desk):
    draft = desk.honest_draft()
    desk.up("a", draft)
    desk.up("a", ahead_of(desk, draft))
    desk.round()
    assert desk.session().acked == 4
    assert desk.up("a", Ack(session_id(1), 1, 9)) == []
    assert desk.session().acked == 9


def test_while_the_next_is_taken_a_lost_verdict_is_sent_again(desk):
    draft = desk.honest_draft()
    ahead = ahead_of(desk, draft)
    desk.up("a", draft)
    desk.up("a", ahead)
    [first] = desk.round()
    assert desk.up("a", draft) == [first]
    assert desk.up("a", ahead) == []
    planned = desk.core.plan(desk.now)
    assert desk.up("a", draft) == [first]
    [second] = desk.finish(planned)
    [both] = desk.up("a", ahead)  # neither was acknowledged
    assert (both.round, both.base_len, both.tokens) == (1, 4, first.tokens + second.tokens)


def test_a_draft_that_nobody_hopes_for(desk):
    """Before the first verdict, or while the verify node goes on by itself, there is nothing to be ahead of."""
    desk.open(number=2)
    text = [1, 2, 3, 4]
    early = replace_message(
        ahead_of(desk, desk.honest_draft()), session_id=session_id(2), base_len=4, base_digest=digest(text)
    )
    assert desk.up("a", early) == []
    assert desk.session(2).ahead is None


BAD = {
    "longer than is ever assigned": ({"tokens": (1,) * 5}, "too_long"),
    "of another vocabulary": ({"tokens": (1, VOCAB)}, "vocabulary"),
}


@pytest.mark.parametrize(("changes", "code"), BAD.values(), ids=BAD)
def test_what_no_draft_may_be_is_refused_by_name(desk, changes, code):
    draft = desk.honest_draft()
    [answer] = desk.up("a", replace_message(ahead_of(desk, draft), **changes))
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.session_id, answer.round) == (code, session_id(1), 1)
    assert desk.session().ahead is None


@pytest.mark.parametrize("changes", [{"base_len": 10}, {"base_len": 1 << 40}, {"base_len": 3}, {"tokens": ()}])
def test_what_cannot_come_true_is_not_kept(desk, changes):
    assert desk.up("a", replace_message(ahead_of(desk, desk.honest_draft()), **changes)) == []
    assert desk.session().ahead is None


def test_no_round_exceeds_the_budget():
    desk = Desk(policy="fixed", budget=4)  # the fake target fails the test
    for number, name in enumerate("abc", 1):
        desk.hello(name)
        desk.open(name, number, sampling=Sampling(seed=number))
    for _ in range(4):
        desk.round()
        for number, name in enumerate("abc", 1):
            session = desk.session(number)
            if session.awaits_draft:
                draft = desk.honest_draft(number)
                desk.up(name, draft)
                desk.up(name, replace_message(draft, round=draft.round + 1, base_len=draft.base_len, assumes=True))
    assert desk.target.num_drafted > 0


@pytest.fixture
def long(desk):
    """The same with a long text."""
    desk.open(epoch=2, max_tokens=90)
    desk.round()
    return desk


def shares(desk, *, ahead):
    """The shares of drafts made ahead that are of use, after each of six verdicts that accept a whole draft."""
    draft, found = desk.honest_draft(), []
    for _ in range(6):
        desk.up("a", draft)
        if ahead:
            desk.up("a", ahead_of(desk, draft))
        desk.round()
        desk.up("a", Ack(session_id(1), 2, len(desk.session().tokens)))
        draft = desk.session().draft or desk.honest_draft()
        found.append(desk.session().ahead_share)
    return found


def test_whether_a_draft_node_drafts_ahead_is_learned_where_it_could(long):
    start = long.session().ahead_share
    afresh = shares(long, ahead=False)
    assert start > afresh[3] > afresh[4] > afresh[5] > 0
    at_hand = shares(long, ahead=True)
    assert afresh[5] < at_hand[3] < at_hand[5] <= 1
    assert long.session().client.ahead_share == pytest.approx(long.session().ahead_share)
    long.open(number=2)
    assert long.session(2).ahead_share == long.session().client.ahead_share  # a new session starts from it


def test_by_hand_one_draft_made_ahead(long):
    shares(long, ahead=True)
    before, alpha = long.session().ahead_share, long.session().acceptance.value
    long.up("a", long.session().draft or long.honest_draft())
    long.round()
    assert long.session().hope == pytest.approx(long.session().acceptance.value)  # the guess, and nothing else
    assert long.session().hope > alpha
    hope = long.session().hope
    long.up("a", replace_message(long.honest_draft(), assumes=True))
    assert long.session().ahead_share == pytest.approx(min(before + AHEAD_SMOOTHING * (1 - hope * before), 1.0))
    assert long.session().hope == 0.0


def test_a_draft_ahead_of_a_rejected_one_teaches_nothing(long):
    shares(long, ahead=False)
    long.draft(tokens=(VOCAB - 1,) * 4)
    before = long.session().ahead_share
    long.round()
    assert long.session().hope == 0.0
    long.draft()
    assert long.session().ahead_share == before


def test_what_cannot_be_made_in_time_teaches_nothing(long):
    shares(long, ahead=False)
    long.draft()
    before = long.session().ahead_share
    long.session().client.draft_s_per_token = 100.0  # much longer than a round and the way there and back
    long.round()
    assert long.session().hope == 0.0
    long.draft()
    assert long.session().ahead_share == before


def test_after_a_time_at_length_0_the_first_draft_tells_nothing_of_the_next(long):
    shares(long, ahead=True)
    long.core.scheduler.budget = 0
    long.draft()
    long.round()
    long.core.scheduler.budget = 4
    long.round()
    before = long.session().ahead_share
    long.draft()
    assert long.session().ahead_share == before
