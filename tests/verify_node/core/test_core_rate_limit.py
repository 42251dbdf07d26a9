"""A sender that misbehaves is limited, barred, and heard again; all others notice nothing.

The core with the fake target, on a clock set by hand.
"""

from typing import Any

import pytest

from goodspeed.errors import MalformedMessage
from goodspeed.wire.fields import BURST_S
from goodspeed.wire.handshake import VERSION, Heartbeat, Welcome
from goodspeed.wire.messages import Ack, Close, Refusal, Verdict
from tests.fakes import VOCAB, Desk, make_hello, make_open, replace_message, session_id
from tests.verify_node.answers import refusals
from tests.verify_node.core.test_core_keys import KEYS, KeyedDesk
from verify_node.core import rate_limit
from verify_node.core.rate_limit import BAR_S, MAX_BAR_S, OFFENCES, RateLimiter, Treatment
from verify_node.core.register import MAX_CLIENTS
from verify_node.core.replies import MAX_REPEATS
from verify_node.core.sessions import STUCK_S
from verify_node.session.session import WINDOW

RUBBISH = MalformedMessage("no message")


def rubbish(desk, peer="a", num_times=1):
    """The answers to so much of it."""
    sends = [send for _ in range(num_times) for send in desk.core.reject(peer.encode(), RUBBISH, desk.now)]
    return [send.message for send in sends]


def codes(answers):
    return [refused.code for refused in refusals(answers)]


@pytest.fixture
def desk():
    """Clients a and b with a session each, 1 and 2, for whose drafts rounds wait."""
    desk = Desk("a", "b", rounds="barrier")
    for number, name in enumerate("ab", 1):
        desk.open(name, number)
    desk.round()
    return desk


def test_answered_then_counted_then_put_out(desk):
    answers = rubbish(desk, num_times=101)
    assert codes(answers) == ["malformed"] * 20 + ["barred"]
    assert answers[-1].what == "this draft node sent too many refused messages, the latest as 'malformed'"
    assert answers[-1].what_to_do == "correct this and reconnect after 30 s; messages before that are ignored"
    assert desk.core.replies.refusals == {"malformed": 101, "barred": 1}
    assert desk.core.replies.num_unanswered == 80
    assert set(desk.core.peers) == {b"b"}
    assert set(desk.core.sessions) == {session_id(2)}
    newest = desk.core.client_events.newest_first()[:2]
    assert {(entry.kind, entry.client) for entry in newest} == {("barred", "a"), ("refused", "a")}


def test_nothing_is_heard_of_who_is_barred_until_it_is_over(desk):
    rubbish(desk, num_times=101)
    for message in (make_hello("a"), make_open(1, epoch=2), Heartbeat(b"bootboot")):
        assert desk.up("a", message) == []
    assert rubbish(desk) == []
    assert desk.core.replies.num_ignored == 4
    desk.now += BAR_S
    desk.core.tick(desk.now)
    assert isinstance(desk.hello("a"), Welcome)
    assert desk.open("a", 1) == []
    assert codes(rubbish(desk, num_times=2)) == ["malformed"] * 2


def test_who_is_put_out_in_a_round_gets_no_verdict_of_it(desk):
    """The last straw is a proposal that the target cannot use."""
    rubbish(desk, "a", 100)
    desk.draft("a", 1)
    desk.draft("b", 2)
    outcomes = {outcome.session_id: outcome for outcome in desk.target.run(desk.plan())}
    outcomes[session_id(1)] = replace_message(outcomes[session_id(1)], invalid="sums to 3")
    sends = desk.core.rounds.finish([*outcomes.values()], 0.01, 0.01)
    assert [(send.peer_id, type(send.message)) for send in sends] == [(b"a", Refusal), (b"b", Verdict)]
    assert sends[0].message.code == "barred"
    desk.draft("b", 2)
    assert desk.round(), "and the pool is as it should be"


def test_with_keys_the_bar_is_on_the_key():
    """It holds for every connection of that key, under any name; and for no other key."""
    desk = KeyedDesk()
    for peer in ("a", "a2"):
        desk.up(peer, make_hello("a", boot_id=peer.encode().rjust(8)), "a")
    desk.hello("b")
    desk.open("b", 2)
    senders = [b"a2", b"a"] * 50 + [b"a2"]
    sends = [send for sender in senders for send in desk.core.reject(sender, RUBBISH, desk.now, KEYS["a"])]
    assert {send.peer_id for send in sends if send.message.code == "barred"} == {b"a", b"a2"}
    assert set(desk.core.peers) == {b"b"}
    assert set(desk.core.rate_limiter.barred) == {KEYS["a"].encode()}
    assert desk.up("new", make_hello("a"), "a") == []
    assert codes(desk.up("b", Ack(session_id(2), 1, 10_000))) == ["wrong_base"]


def test_what_a_barred_client_still_does_counts_for_no_other():
    """Its connection may be named like another client's key, as a DEALER chooses its name."""
    desk = KeyedDesk(max_sessions=300, max_client_sessions=300, num_pages=2000, validates=False)
    name = KEYS["b"]
    desk.hello("b")
    desk.up(name, make_hello("a"), "a")
    for number in range(1, 211):
        desk.up(name, make_open(number, max_tokens=1), "a")
    while desk.round():
        pass
    for session in desk.core.sessions.values():
        session.moved_at = -STUCK_S
    desk.core.tick(desk.now + 1.0)
    assert not desk.core.sessions
    assert [*desk.core.rate_limiter.barred] == [KEYS["a"].encode(), b"gone " + KEYS["b"].encode()]
    assert desk.core.rate_limiter._senders[KEYS["b"].encode()].offences == 0.0


def test_names_are_not_remembered_for_ever():
    desk = Desk(validates=False)  # which would look at thousands of clients thousands of times
    desk.hello("kept")
    desk.open("kept", 1)
    for number in range(MAX_CLIENTS + 10):
        desk.core.receive(b"x%d" % number, make_hello(f"n{number}", boot_id=b"bootboot"), float(number))
        desk.core.register.expire(float(number), 0.0)
        desk.core.receive(b"kept", Heartbeat(b"bootboot"), float(number))
    assert len(desk.core.allocator.clients) < 100
    assert "kept" in desk.core.allocator.clients


# -- what never moves --------------------------------------------------------------------------------------------------


def test_an_ack_that_lags_for_ever_ends_its_session_and_one_of_more_begins_anew(desk):
    """Session 3 goes on by itself until its window is full."""
    desk.open("a", 3, max_draft=0, max_tokens=100, prompt=(4, 5, 6))
    for _ in range(20):
        for name, number in (("a", 1), ("b", 2)):
            desk.draft(name, number)
        desk.round()
    assert len(desk.text(3)) == WINDOW + 1
    lagging = Ack(session_id(3), 1, 3)
    for base_len in (3, 4, 5):
        if base_len > 3:
            assert desk.up("a", Ack(session_id(3), 1, base_len)) == []
        answers = [answer for _ in range(MAX_REPEATS) for answer in desk.up("a", lagging)]
        assert [len(answer.tokens) for answer in answers] == [WINDOW + 4 - base_len] * MAX_REPEATS
    assert codes(desk.up("a", lagging)) == ["not_acknowledged"]
    assert session_id(3) not in desk.core.sessions
    assert codes(desk.up("a", lagging)) == ["unknown_session"]
    assert session_id(1) in desk.core.sessions, "of the same client"


def test_asking_again_for_the_logprobs_of_long_prompts_bars_nobody():
    """A line stalls, and each session asks again for its first verdict, which has a logprob for each prompt token."""
    num_tokens, numbers = 5000, range(1, 21)
    large: dict[str, Any] = {"context_len": 6000, "max_round_tokens": 600, "num_pages": 2000, "page_size": 64}
    desk = Desk("a", max_client_sessions=64, validates=False, **large)
    for number in numbers:
        assert desk.open(number=number, prompt=[1] * num_tokens, num_prompt_logprobs=0, max_tokens=5) == []
    while any(session.last_verdict is None for session in desk.core.sessions.values()):
        desk.round(0.0)
    answers = [desk.up("a", Ack(session_id(number), 1, num_tokens)) for number in numbers]
    told = [len(answer.prompt_logprobs or ()) for [answer] in filter(None, answers) if isinstance(answer, Verdict)]
    assert told == [num_tokens - 1] * 16, "as many as 20 s' worth of messages"
    assert not desk.core.rate_limiter.barred
    desk.now += 2.0
    assert desk.up("a", Ack(session_id(20), 1, num_tokens)) != []


def test_an_opening_that_is_repeated_is_answered_again_and_for_ever_it_is_not(desk):
    answers = [answer for _ in range(MAX_REPEATS + 1) for answer in desk.up("b", make_open(2))]
    assert codes(answers) == ["not_acknowledged"]
    assert set(desk.core.sessions) == {session_id(1)}


def test_the_same_draft_for_ever_is_answered_by_nothing(desk):
    """And it counts as what it is: more messages than its session calls for."""
    draft = desk.honest_draft()
    answers = [answer for _ in range(8100) for answer in desk.up("a", draft)]
    assert codes(answers) == ["barred"]
    assert "more messages than its sessions need" in answers[0].what
    assert set(desk.core.sessions) == {session_id(2)}


@pytest.mark.parametrize(
    "kept_by", [{"base_len": 1, "tokens": ()}, {"base_len": 500}, {"complete": False}, {"tokens": (VOCAB,)}]
)
def test_a_session_that_is_mentioned_and_never_moves_gives_its_memory_back(desk, kept_by):
    """Its peer says something about it every 20 s that is refused, or changes nothing."""
    desk.up("b", Close(session_id(2), 1))
    mention = replace_message(desk.honest_draft(), probabilities=b"", **kept_by)
    for second in range(1, int(2 * STUCK_S)):
        desk.now = float(second)
        desk.round(0.0)
        if second % 20 == 0:
            desk.up("a", mention)
        desk.up("a", Heartbeat(b"bootboot"))
        told = [send.message for send in desk.core.tick(desk.now) if send.peer_id == b"a"]
        if session_id(1) not in desk.core.sessions:
            break
    assert desk.now > STUCK_S
    assert session_id(1) in {answer.session_id for answer in told if isinstance(answer, Refusal)}
    assert codes(told) == ["not_acknowledged"]
    desk.round()
    assert desk.core.pool.num_free == desk.core.pool.num_pages


def test_a_session_that_waits_for_memory_is_not_at_fault():
    """It does not move either, for as long as the other takes."""
    desk = Desk("a", num_pages=8)
    desk.begin(number=1, prompt=(1,) * 20, max_tokens=10)
    desk.open(number=2, prompt=(2,) * 20, max_tokens=10)
    for second in range(1, int(STUCK_S) + 20):
        desk.now = float(second)
        desk.up("a", Heartbeat(b"bootboot"))
        desk.up("a", make_open(2, prompt=(2,) * 20, max_tokens=10))  # its word, again and again
        desk.core.tick(desk.now)
    assert session_id(2) in desk.core.sessions


def test_a_session_within_the_window_of_its_long_line_is_not_at_fault():
    """Rounds may go on without its acknowledgements, for two round trips: only others keep them from it."""
    desk = Desk("a")
    desk.open(max_tokens=60)
    session = desk.session()
    session.round_trip_s = 1.0
    for _ in range(2 * WINDOW):
        desk.round()
    assert session.num_unacknowledged == 2 * WINDOW
    later = desk.now + STUCK_S + 1.0
    session.heard(b"a", later)
    assert desk.core.sessions.expire(later, desk.core.rounds.round_s) == []
    session.round_trip_s = 0.0
    assert desk.core.sessions.expire(later, desk.core.rounds.round_s) == [session]


def test_drafts_that_come_after_their_session_went_on_without_are_no_offence(desk):
    """A line held them back."""
    late = desk.honest_draft()
    desk.now = 100.0
    desk.core.receive(b"b", Heartbeat(b"bootboot"), desk.now)
    desk.up("a", Heartbeat(b"bootboot"))
    session = desk.session()
    assert len(late.tokens) > 1
    desk.round()
    assert len(session.tokens) > late.base_len
    assert [answer for _ in range(101) for answer in desk.up("a", late)] == []
    assert desk.core.replies.refusals.total() == 0


# -- what others notice ------------------------------------------------------------------------------------------------


LIES = {
    "vocabulary": lambda own: replace_message(own, tokens=(VOCAB,), probabilities=b""),
    "wrong_base": lambda own: replace_message(own, base_len=500),
    "stale_epoch": lambda own: replace_message(own, epoch=0),
    "unknown_session": lambda own: replace_message(own, session_id=session_id(77)),
    "not_owner": lambda own: replace_message(own, session_id=session_id(1)),
    "ack beyond": lambda own: Ack(session_id(3), 1, 10_000),
    "another's ack": lambda own: Ack(session_id(2), 1, 1),
    "another's close": lambda own: Close(session_id(1), 1),
    "empty prompt": lambda own: make_open(8, prompt=()),
    "another's session": lambda own: make_open(1, epoch=5),
    "foreign prompt": lambda own: make_open(8, prompt=(VOCAB,)),
    "version": lambda own: make_hello("c", version=VERSION + 1),
    "tokenizer": lambda own: make_hello("c", tokenizer="another"),
}
"""Each is refused, whoever sends it; own: C's draft for its session (3)."""


def permissions_of_others(lie, *, writes=True):
    """Returns what A's and B's sessions may draft, and their texts. C tells a lie; if it writes, it drafts once."""
    desk = Desk("a", "b", "c", budget=12, eta=0.3, beta=0.3)
    for number, name in enumerate("abc" if writes else "ab", 1):
        desk.open(name, number, max_tokens=80)
    told = []
    for number in range(12):
        desk.now += 0.01  # C's next draft is hoped for no more
        verdicts = [message for message in desk.round() if isinstance(message, Verdict)]
        told += [(one.session_id, one.may_draft, one.tokens) for one in verdicts if one.session_id != session_id(3)]
        if lie == "a flood":
            rubbish(desk, "c", 60)
        elif not number and writes:
            desk.draft("c", 3)
        elif lie == "malformed":
            assert codes(rubbish(desk, "c")) == ["malformed"]
        elif number > 1 and lie is not None:
            assert codes(desk.up("c", LIES[lie](desk.honest_draft(3)))), "refused by name"
        for owner, name, alpha in ((1, "a", 0.9), (2, "b", 0.4)):
            if not desk.session(owner).finished:
                assert desk.draft(name, owner, alpha=alpha) == []
    assert (b"c" in desk.core.rate_limiter.barred) == (lie == "a flood")
    return told


HONEST = permissions_of_others(None)


def test_the_honest_get_permissions_that_change():
    assert len({length for _, length, _ in HONEST}) > 2
    assert len(HONEST) > 20


@pytest.mark.parametrize("lie", [*LIES, "malformed"])
def test_lies_refused_on_sight_change_nobody_elses_permissions(lie):
    assert permissions_of_others(lie) == HONEST


def test_nor_does_a_liar_who_is_put_out():
    """One without sessions: those who have some leave their share to the others when they go."""
    assert permissions_of_others("a flood", writes=False) == permissions_of_others(None, writes=False)


# -- the limits themselves ---------------------------------------------------------------------------------------------


WHO = b"a"
SESSIONS = 64


@pytest.fixture
def conduct():
    return RateLimiter(SESSIONS)


def offend(conduct, num_times, now=0.0, code="malformed"):
    """Returns how each of so many refusals is treated."""
    found = []
    for _ in range(num_times):
        assert not conduct.heard(WHO, now)
        found.append(conduct.refused(WHO, code, now))
    return found


def test_offences_are_forgotten_by_and_by(conduct):
    offend(conduct, 60)
    assert offend(conduct, 1, now=30.0) == [Treatment.COUNTED]
    assert offend(conduct, 1, now=45.0) == [Treatment.ANSWERED]
    assert all(one is Treatment.ANSWERED for second in range(1000) for one in offend(conduct, 1, now=100.0 + second))


def test_long_texts_count_as_more_messages(conduct):
    assert [bool(conduct.heard(WHO, 0.0, num_tokens=1 << 20)) for _ in range(20)] == [False] * 19 + [True]


@pytest.mark.parametrize(
    "code", ["stale_epoch", "unknown_session", "hello_first", "wrong_base", "too_many_sessions", "not_promised"]
)
def test_what_a_bad_line_brings_about_is_no_offence(conduct, code):
    assert code not in OFFENCES
    assert set(offend(conduct, 2000, code=code)) == {Treatment.ANSWERED}


def test_verdicts_earn_the_answers_to_them(conduct):
    """Rounds of a millisecond, three messages to each verdict, for 64 sessions: nothing of that is a flood."""
    for number in range(1000):
        for _ in range(3 * SESSIONS):
            assert not conduct.heard(WHO, number / 1000)
        for _ in range(SESSIONS):
            conduct.earned(WHO)
    assert conduct.refused(WHO, "stale_epoch", 1.0) is Treatment.ANSWERED


def test_repeated_verdicts_are_limited_and_bar_nobody(conduct):
    burst = 16 * int(conduct.max_messages)
    conduct.heard(WHO, 0.0)
    assert [conduct.repeats(WHO, 10**9) for _ in range(3)] == [True, True, False]
    assert not conduct.repeats(WHO, 16)
    assert not conduct.heard(WHO, BURST_S / 4)
    assert [conduct.repeats(WHO, burst // 4), conduct.repeats(WHO, 16)] == [True, False], "a quarter has drained"
    assert conduct.refused(WHO, "stale_epoch", BURST_S / 4) is Treatment.ANSWERED


def test_all_sessions_of_an_honest_client_repeat_themselves_on_a_dead_line(conduct):
    """Two messages a session after 1, 2, 4 and then every 8 s; half of a minute's arrive at once; opened anew."""
    at = 0.0
    for silence in (1, 2, 4, *[8] * 30):
        at += silence
        treated = offend(conduct, 2 * SESSIONS, max(at, 60.0), "unknown_session")  # what the line held back, at once
        assert set(treated) == {Treatment.ANSWERED}
    assert not any(conduct.heard(WHO, at, num_tokens=32_000) for _ in range(SESSIONS))


def test_a_bar_ends_and_the_next_is_twice_as_long(conduct):
    now, lengths = 0.0, []
    for _ in range(7):
        lengths.append(conduct.bar(WHO, now))
        conduct.expire(now + lengths[-1] - 0.01)
        assert WHO in conduct.barred
        now += lengths[-1]
        conduct.expire(now)
        assert WHO not in conduct.barred
        assert offend(conduct, 1, now) == [Treatment.ANSWERED]
    assert lengths == [BAR_S, 60, 120, 240, 480, MAX_BAR_S, MAX_BAR_S]
    assert conduct.bar(WHO, now + MAX_BAR_S) == BAR_S, "it behaved for as long as the longest bar"


def test_memory_is_bounded_whatever_names_come(conduct, monkeypatch):
    monkeypatch.setattr(rate_limit, "MAX_SENDERS", 64)
    for number in range(3 * 64):
        name = number.to_bytes(4, "big")
        conduct.heard(name, 0.0)
        conduct.refused(name, "malformed", 0.0)
        conduct.bar(name, float(number))
    assert len(conduct.barred) == len(conduct._senders) == 64
    assert (3 * 64 - 1).to_bytes(4, "big") in conduct.barred
