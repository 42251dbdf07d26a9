"""The verify node's state machine: rounds by hand, every refusal by name, and what lost messages lead to."""

from typing import Any
from unittest.mock import Mock

import pytest

from experiments.simulation.nodes.invariants import validate
from goodspeed.exact.proposal_bytes import certain
from goodspeed.exact.trees import pack
from goodspeed.fair.estimators import INITIAL_ACCEPTANCE
from goodspeed.wire.generation import TokenBias
from goodspeed.wire.handshake import VERSION, Heartbeat, Leave, Welcome
from goodspeed.wire.messages import Ack, Close, LogitRules, Verdict
from tests.fakes import VOCAB, Desk, expected, make_hello, make_open, next_token, replace_message, session_id
from tests.verify_node.answers import refusal
from verify_node.core.sessions import FORGOTTEN_S
from verify_node.scheduler.allocate import FIRST_LENGTH
from verify_node.scheduler.round import Outcome
from verify_node.session.session import MAX_RETURNS, WINDOW
from verify_node.slo.promises import GONE_S


@pytest.fixture
def desk():
    """A verify node that knows client a, and whose rounds wait for nobody."""
    return Desk("a")


@pytest.fixture
def drafting():
    """Session 1 of client a has had its first verdict, and rounds wait for its draft."""
    desk = Desk("a", rounds="barrier")
    desk.begin()
    assert desk.session().awaits_draft
    return desk


# -- the way of a session ----------------------------------------------------------------------------------------------


def test_the_first_verdict_is_one_token_and_how_much_may_be_drafted():
    desk = Desk(rounds="barrier")
    assert isinstance(desk.hello(), Welcome)
    assert desk.open() == []
    [verdict] = desk.round()
    assert verdict == Verdict(
        session_id(1), epoch=1, base_len=3, tokens=expected()[:1], num_verified=0, num_accepted=0, may_draft=8
    )
    assert desk.round() == []  # a draft is awaited


def test_a_long_round_does_not_count_as_usual_for_long(desk):
    """Else rounds would wait for drafts, after a long prompt, as long as that prompt took."""
    desk.open(max_tokens=100)
    desk.round(1.0)
    assert desk.core.rounds.round_s == pytest.approx(1.0)
    desk.round(0.01)
    assert desk.core.rounds.round_s <= 0.02


@pytest.mark.parametrize("reads_per_row", [False, True])
def test_every_finished_round_teaches_what_rounds_cost(drafting, reads_per_row):
    cost = drafting.core.rounds.cost
    cost.reads_per_row = reads_per_row
    assert (cost.num_rounds, cost.round_s(3, 1, 0)) == (1, pytest.approx(0.01))  # the prompt's round
    cost.observe = Mock()
    drafting.draft()
    drafting.round(duration_s=0.25)
    context = 27 if reads_per_row else 3
    cost.observe.assert_called_once_with(9, 1, context, 0.25)  # eight drafted tokens, on a prompt of three


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_hello_comes_first():
    desk = Desk()
    answer = refusal(desk.up("a", make_open()), "hello_first")
    assert answer.session_id is None  # it is about the peer, not about a session
    assert not desk.core.sessions


@pytest.mark.parametrize(
    ("changes", "code"), [({"version": VERSION + 1}, "version"), ({"tokenizer": "another"}, "tokenizer")]
)
def test_a_foreign_hello(changes, code):
    desk = Desk()
    answer = refusal([desk.hello(**changes)], code)
    assert "fake'" not in answer.what, "names, and no fingerprints"
    assert not desk.core.peers
    assert desk.core.replies.refusals == {code: 1}


OPENS = {
    "empty prompt": ({"prompt": ()}, "prompt"),
    "too long": ({"prompt": (1,) * 200}, "prompt"),
    "too long with what is committed": ({"prompt": (1,) * 100, "committed": (1,) * 100, "max_tokens": 150}, "prompt"),
    "complete": ({"committed": (1,) * 20}, "prompt"),
    "prompt of another vocabulary": ({"prompt": (1, VOCAB)}, "vocabulary"),
    "committed of another vocabulary": ({"committed": (VOCAB,)}, "vocabulary"),
    "bias of what is no token": ({"logit_rules": LogitRules(logit_bias=(TokenBias(VOCAB, 1.0),))}, "vocabulary"),
    "more tokens at least than at most": ({"min_tokens": 21}, "malformed"),
    "no token that is not a stop id": ({"min_tokens": 1, "stop_ids": tuple(range(VOCAB))}, "unsupported"),
}


@pytest.mark.parametrize(("changes", "code"), OPENS.values(), ids=OPENS)
def test_a_session_that_cannot_be(desk, changes, code):
    answer = refusal(desk.open(number=7, epoch=3, **changes), code)
    assert (answer.session_id, answer.epoch) == (session_id(7), 3)
    assert not desk.core.sessions


def test_memory_bounds_the_context_and_a_limit_the_number_of_sessions():
    desk = Desk("a", num_pages=3, page_size=4, max_sessions=1)
    refusal(desk.open(number=1, prompt=range(12)), "prompt")
    assert desk.open(number=1, prompt=range(11)) == []
    refusal(desk.open(number=2), "too_many_sessions")
    assert desk.open(number=1, epoch=2) == []  # what is open may be reopened


DRAFTS = {
    "not open": ({"session_id": session_id(9)}, "unknown_session"),
    "an epoch that was never opened": ({"epoch": 2}, "unknown_session"),
    "an epoch of the past": ({"epoch": 0}, "stale_epoch"),
    "more text than there is": ({"base_len": 6}, "wrong_base"),
    "much more text than there is": ({"base_len": 1 << 40}, "wrong_base"),
    "another vocabulary": ({"tokens": (1, VOCAB)}, "vocabulary"),
    "a proposal under match": ({"proposal": b"1"}, "proposal"),
}


@pytest.mark.parametrize(("changes", "code"), DRAFTS.values(), ids=DRAFTS)
def test_a_draft_that_is_not_taken(desk, changes, code):
    desk.begin()
    desk.hello("b")
    desk.begin("b", 2)
    desk.draft("b", 2)
    answer = refusal(desk.draft(**changes), code)
    wanted = {"session_id": session_id(1), "epoch": 1} | changes
    assert (answer.session_id, answer.epoch) == (wanted["session_id"], wanted["epoch"])
    assert desk.core.replies.refusals == {code: 1}
    assert (desk.session().drafts.newest, desk.session().acked) == (None, 3)
    first, second = sorted(desk.round(), key=lambda verdict: verdict.session_id)
    assert (first.num_verified, first.tokens) == (0, expected()[2:3])
    assert (second.num_accepted, second.num_verified) == (8, 8)  # the other, undisturbed
    assert desk.text(2) == expected(2)[: len(desk.text(2))]


@pytest.mark.parametrize("drafted", ["a chain", "a tree"])
def test_no_more_is_verified_than_may_be_drafted(drafting, drafted):
    """The first tokens of a tree are its chain of first choices."""
    right = expected()[1:16]
    draft: Any = {"tokens": right}
    if drafted == "a tree":
        wrong = tuple((token + 1) % VOCAB for token in right[:2])
        draft = {"tokens": (*right[:8], *wrong), "parents": pack((*range(-1, 7), -1, 0))}
    assert drafting.draft(**draft) == []
    [verdict] = drafting.round()
    assert (verdict.num_verified, verdict.num_accepted) == (8, 8)
    assert drafting.text() == expected()[:10]


@pytest.mark.parametrize("rounds", ["barrier", "continuous"])
def test_a_draft_that_comes_before_the_first_verdict_is_of_use_after_it(rounds):
    desk = Desk("a", rounds=rounds)
    desk.open()
    assert desk.draft(tokens=expected()[:5]) == []
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.tokens) == (0, expected()[:1])
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.num_accepted) == (4, 4)


NOT_DRAWN = {
    "no proposal": {"proposal": None},
    "a tree": {"tokens": (1, 2), "parents": pack((-1, -1))},
    "a chain that is sent as a tree": {"tokens": (1, 2), "parents": pack((-1, 0))},
}


@pytest.mark.parametrize("changes", NOT_DRAWN.values(), ids=NOT_DRAWN)
def test_a_ratio_draft_that_does_not_say_what_it_was_drawn_from(desk, changes):
    desk.begin(verification="ratio")
    answer = refusal(desk.draft(**changes), "proposal")
    assert (answer.session_id, answer.epoch) == (session_id(1), 1)
    assert desk.round() == []  # it is still waited for
    assert desk.draft() == []
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.num_accepted) == (FIRST_LENGTH, FIRST_LENGTH)


@pytest.mark.parametrize("claimed", [b"", b"0"])
@pytest.mark.parametrize("proposal", [bytes(100_000), b"", certain((1,)) * 2, certain((1,)) + b"0"])
def test_a_proposal_of_a_wrong_size_is_not_kept_and_its_session_goes_on(desk, proposal, claimed):
    desk.begin(verification="ratio")
    refusal(desk.draft(tokens=(1,), proposal=proposal, probabilities=claimed), "proposal")
    assert desk.session().drafts.newest.proposal is None
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.tokens) == (0, expected()[1:2])


def test_an_empty_ratio_draft_needs_no_proposal(desk):
    desk.begin(verification="ratio")
    assert desk.draft(tokens=(), proposal=None) == []
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.tokens) == (0, expected()[1:2])


def test_an_invalid_proposal_is_named_and_counts_as_disagreement(drafting):
    drafting.draft()
    planned = drafting.plan()
    drafting.target.run(planned)
    before = drafting.session().acceptance.value
    token = expected()[1]
    sends = drafting.core.rounds.finish([Outcome(session_id(1), (token,), 0, 0.0, "sums to 3")], 0.01, 0.01)
    refused, verdict = (send.message for send in sends)
    assert (refused.code, refused.what, refused.session_id) == ("proposal", "sums to 3", session_id(1))
    assert (verdict.num_verified, verdict.num_accepted, verdict.tokens) == (0, 0, (token,))
    assert drafting.session().acceptance.value < before
    assert drafting.core.replies.refusals == {"proposal": 1}


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_another_clients_session_is_out_of_reach(drafting, epoch):
    drafting.hello("b")
    tokens = list(drafting.session().tokens)
    draft = replace_message(drafting.honest_draft(), epoch=epoch)
    again = make_open(1, epoch=epoch, prompt=(5, 6))
    for message in (draft, Ack(session_id(1), epoch, 4), Close(session_id(1), epoch), again):
        answer = refusal(drafting.up("b", message), "not_owner")
        assert (answer.session_id, answer.epoch) == (session_id(1), epoch)
    assert drafting.session().tokens == tokens
    assert drafting.session().peer_id == b"a"
    assert drafting.session().drafts.newest is None


# -- lost and repeated messages ----------------------------------------------------------------------------------------


def test_an_open_or_a_draft_that_is_repeated_changes_nothing(drafting):
    [again] = drafting.open()
    assert drafting.core.counts.num_repeated == 1
    assert (again.base_len, again.tokens) == (3, expected()[:1])
    assert (again.may_draft, drafting.session().drafts.may_draft) == (8, 8)
    draft = drafting.honest_draft()
    assert drafting.up("a", draft) == drafting.up("a", draft) == []
    planned = drafting.plan()
    assert drafting.up("a", draft) == []  # while its round is in flight, too
    [verdict] = drafting.finish(planned)
    assert drafting.up("a", draft) == []  # nothing answers it, and nothing of it is left
    assert drafting.round() == []
    assert drafting.text() == expected()[:10]
    assert drafting.up("a", Ack(session_id(1), 1, 4)) == [verdict]  # which was lost


def test_an_answer_to_a_verdict_that_was_sent_twice_tells_no_round_trip(desk):
    desk.begin(max_draft=0)
    desk.now = 5.0
    assert len(desk.up("a", Ack(session_id(1), 1, 3))) == 1  # sent again: the first was lost, or late
    desk.now = 5.1
    assert desk.up("a", Ack(session_id(1), 1, 4)) == []
    assert desk.session().round_trip_s == 0.0


def test_all_that_is_unacknowledged_is_sent_again(desk):
    desk.open(max_draft=0)
    for _ in range(5):
        desk.round()
    assert desk.up("a", Ack(session_id(1), 1, 5)) == []  # two have arrived
    [verdict] = desk.up("a", Ack(session_id(1), 1, 5))  # and nothing since
    assert (verdict.base_len, verdict.tokens, verdict.may_draft) == (5, expected()[2:5], 0)
    [verdict] = desk.up("a", Ack(session_id(1), 1, 4))  # an older Ack was overtaken: what it lacked is there by now
    assert (verdict.base_len, verdict.tokens) == (5, expected()[2:5])


def test_a_lost_finish_is_asked_for(desk):
    desk.begin(max_draft=0, max_tokens=2)
    [last] = desk.round()
    assert desk.up("a", Ack(session_id(1), 1, 4)) == [], "it was sent before the end"
    assert desk.up("a", Ack(session_id(1), 1, 4)) == [last]
    assert desk.up("a", Ack(session_id(1), 1, 5)) == []
    [again] = desk.up("a", Ack(session_id(1), 1, 5))
    assert (again.tokens, again.finish_reason) == ((), "length")
    assert desk.up("a", Ack(session_id(1), 1, 5)) == [again]  # that one was lost, too


def test_the_window_closes_without_acks_and_opens_with_one(desk):
    desk.open(max_draft=0, max_tokens=100)
    for num_rounds in (WINDOW + 1, WINDOW):  # of the first ones, the newest is not overdue
        assert [len(desk.round()) for _ in range(num_rounds)] == [1] * num_rounds
        assert desk.round() == []
        desk.up("a", Ack(session_id(1), 1, 3 + WINDOW))


def test_the_newest_verdict_fills_no_window():
    """A session whose draft brought more tokens than the window has takes part in the next round all the same."""
    desk = Desk("a", budget=40)
    desk.begin(max_tokens=200)
    desk.draft()
    [brought] = desk.round()
    assert len(brought.tokens) > WINDOW
    desk.now += 0.01  # longer than the round waits for the next draft
    assert len(desk.round()) == 1
    assert desk.round() == []


def test_a_far_client_gets_a_wider_window(desk):
    """Acks that take 0.5 s at 0.01 s a round: two round trips are 100 rounds, whatever was sent since."""
    desk.open(max_draft=0, max_tokens=180)
    arriving = []
    for step in range(400):
        desk.round()
        desk.now = step * 0.01
        arriving.append((desk.now + 0.5, len(desk.session().tokens)))
        while arriving[0][0] <= desk.now:
            desk.up("a", Ack(session_id(1), 1, arriving.pop(0)[1]))
        if desk.session().finished:
            break
    assert desk.session().round_trip_s == pytest.approx(0.5, rel=0.1)
    assert desk.session().window(desk.core.rounds.round_s) == pytest.approx(100, rel=0.1)


def test_the_round_in_flight_ends_and_no_other_begins_in_a_node_that_stops(desk):
    desk.begin()
    desk.draft()
    planned = desk.plan()
    desk.core.drain()
    [verdict] = desk.finish(planned)
    assert verdict.num_accepted == len(verdict.tokens) - 1 > 0
    desk.draft()
    assert desk.core.plan(desk.now) is None


# -- opening again -----------------------------------------------------------------------------------------------------


def test_a_session_goes_on_from_what_is_committed_and_memory_that_is_not_right_any_more_is_dropped(drafting):
    drafting.draft(tokens=drafting.honest_draft().tokens[:2])
    drafting.round()
    assert drafting.open(epoch=2, committed=expected()[:2]) == []
    assert drafting.core.pool.length(session_id(1)) == 4  # memory that is still right is kept
    [verdict] = drafting.round()
    assert (verdict.epoch, verdict.base_len, verdict.tokens) == (2, 5, expected()[2:3])
    refusal(drafting.up("a", Ack(session_id(1), 1, 5)), "stale_epoch")
    refusal(drafting.open(epoch=1), "stale_epoch")
    drafting.open(epoch=3, prompt=(1, 9, 3))
    assert session_id(1) not in drafting.core.pool, "a text of a new place has no memory, either"
    drafting.round()
    assert drafting.text() == (next_token(1, (1, 9, 3)),)


@pytest.mark.parametrize("order", ["fcfs", "laps"])
@pytest.mark.parametrize("change", ["nothing", "its last token"])
@pytest.mark.parametrize("max_tokens", [2, 14])
def test_a_text_that_is_opened_again_and_again_starves_none(order: str, change: str, max_tokens: int) -> None:
    """Finished or not after two rounds, it would have memory before the other for ever."""
    desk = Desk("a", "b", num_pages=20, page_size=4, context_len=80, max_round_tokens=200, order=order)
    desk.open("a", 1, prompt=[3] * 65 + [1], max_tokens=max_tokens, max_draft=0)
    desk.now = 0.1
    desk.open("b", 2, prompt=[4] * 40, max_tokens=20, max_draft=0)
    for epoch in range(2, 500):
        for _ in range(2):
            desk.now += 0.15
            desk.round()
            desk.acknowledge(2)
        if desk.session(2).finished:
            return
        last = epoch % 20 if change == "its last token" else 1
        desk.open("a", 1, epoch=epoch, prompt=[3] * 65 + [last], max_tokens=max_tokens, max_draft=0)
    pytest.fail(f"it has {len(desk.text(2))} tokens after {desk.now:.0f} s")


def test_a_text_keeps_its_place_for_some_losses(desk: Desk) -> None:
    desk.open(max_draft=0)
    for epoch in range(2, MAX_RETURNS + 4):
        desk.round()
        desk.now += 1.0
        desk.open(epoch=epoch, max_draft=0)
        is_kept = epoch <= MAX_RETURNS + 1
        assert desk.session().arrived_at == (0.0 if is_kept else pytest.approx(9.0, abs=0.2))
        assert (session_id(1) in desk.core.pool) is (is_kept or epoch > MAX_RETURNS + 2)


def test_a_session_that_is_closed_and_opened_within_a_round_is_another_one(drafting):
    """Were the same epoch enough to know it by, the round's tokens would land in the wrong place."""
    drafting.draft()
    planned = drafting.plan()
    drafting.up("a", Close(session_id(1), 1))
    drafting.open()
    assert drafting.finish(planned) == []
    [verdict] = drafting.round()
    assert (verdict.base_len, verdict.tokens) == (3, expected()[:1])


# -- peers -------------------------------------------------------------------------------------------------------------


def test_heartbeats_go_to_everybody_when_due(desk):
    desk.hello("b")
    sends = desk.core.tick(0.0)
    assert {send.peer_id for send in sends} == {b"a", b"b"}
    assert all(send.message == Heartbeat(b"verify-0") for send in sends)
    assert desk.core.tick(0.5) == []
    assert len(desk.core.tick(1.0)) == 2


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_silent_peer_loses_its_sessions(drafting, in_flight):
    drafting.draft()
    planned = drafting.plan() if in_flight else None
    drafting.hello("b")
    drafting.now = 5.0
    drafting.up("b", Heartbeat(b"b" * 8))
    drafting.core.tick(7.0)
    assert list(drafting.core.peers) == [b"b"]
    assert not drafting.core.sessions
    if planned:
        assert drafting.finish(planned) == []
    drafting.core.plan(8.0)
    assert drafting.core.pool.num_free == drafting.core.pool.num_pages
    refusal(drafting.up("a", Ack(session_id(1), 1, 4)), "hello_first")


def test_a_session_that_is_never_mentioned_again_is_dropped(drafting):
    """Its Close was lost, or its draft node opened it by a message that came late."""
    while drafting.now <= FORGOTTEN_S:
        drafting.core.tick(drafting.now)
        assert drafting.core.sessions
        drafting.now += 1.0
        drafting.up("a", Heartbeat(b"a" * 8))
    drafting.core.tick(drafting.now)
    assert not drafting.core.sessions


@pytest.mark.parametrize("changes", [{"name": "b"}, {"boot_id": b"12345678"}, {"draft_fingerprint": "other"}])
def test_a_peer_that_is_another_now_leaves_its_sessions(drafting, changes):
    drafting.up("a", make_hello(**({"name": "a"} | changes)))
    assert not drafting.core.sessions


def test_two_processes_of_one_name_are_two_clients(desk):
    """Each has a part of its own, and estimates of its own draft model, whichever comes again or goes."""
    desk.hello("a")
    second = make_hello("a", boot_id=b"another!", draft_fingerprint="other")
    desk.up("b", second)
    assert client_names(desk) == {b"a": "a", b"b": "a-2"}
    assert desk.core.allocator.clients["a"].draft_fingerprint != "other"
    assert desk.core.allocator.clients["a-2"].draft_fingerprint == "other"
    desk.open("b", 7)
    desk.up("c", make_hello("a-2", boot_id=b"a third!"))  # which really is called so
    desk.up("a", Leave())
    desk.up("b", second)
    assert session_id(7) in desk.core.sessions
    desk.up("b2", second)
    assert client_names(desk) == {b"b2": "a-2", b"c": "a-2-2"}
    assert desk.session(7).peer_id == b"b2"
    assert "fake-draft, another one named a" in [entry.what for entry in desk.core.client_events.newest_first()]
    validate(desk.core)


def test_another_client_with_the_same_boot_id_takes_no_sessions_along(drafting):
    """The id is equal by chance, or because it was told: the sessions stay with the connection that they came by."""
    drafting.hello("b", boot_id=drafting.core.peers[b"a"].hello.boot_id)
    assert drafting.session().peer_id == b"a"
    assert set(drafting.core.peers) == {b"a", b"b"}


def test_names_that_get_a_number_stay_names(desk):
    for number in range(12):
        desk.up(f"p{number}", make_hello("x" * 64, boot_id=number.to_bytes(8, "big")))
    names = {name for name in client_names(desk).values() if name.startswith("x")}
    assert len(names) == 12
    assert max(map(len, names)) <= 64


def client_names(desk):
    return {peer_id: peer.client.name for peer_id, peer in desk.core.peers.items()}


def test_a_client_that_comes_by_anothers_connection_ends_the_others_sessions(drafting):
    drafting.hello("b")
    drafting.open("b", 2)
    drafting.up("b", make_hello("a"))
    assert client_names(drafting) == {b"b": "a"}
    assert set(drafting.core.sessions) == {session_id(1)}
    assert drafting.session().peer_id == b"b"


def test_what_was_learned_of_a_draft_model_is_not_believed_of_another(drafting):
    for _ in range(5):
        drafting.draft(alpha=0.0)
        drafting.round()
    client = drafting.core.allocator.clients["a"]
    learned, most = client.acceptance.value, client.acceptance_bound.most
    assert learned < INITIAL_ACCEPTANCE
    drafting.hello("a", draft_fingerprint="")  # the same process says Hello again
    assert client.acceptance.value == learned
    drafting.up("a", Leave())
    drafting.hello("a", draft_model="", boot_id=b"without!")
    drafting.up("a", Leave())
    assert client.acceptance.value == learned, "nothing was learned of another"
    claims = client.calibrations["model"].by_code
    drafting.hello("a", draft_fingerprint="other", boot_id=b"bootboot")
    assert client.acceptance.value == INITIAL_ACCEPTANCE
    assert client.acceptance_bound.most == most, "what its drafts have brought still bounds what is believed"
    assert client.calibrations["model"].by_code == claims, "or a liar could rename its model"


@pytest.mark.parametrize("order", ["fcfs", "laps"])
def test_a_session_that_acknowledges_nothing_yields_its_pages_after_a_while(order):
    desk = Desk("a", "b", num_pages=64, page_size=4, context_len=256, self_draft=False, order=order, draft_model="")
    desk.open("a", 1, prompt=(1,) * 180, max_tokens=60)
    while desk.session(1).can_move(desk.core.rounds.round_s):
        desk.round()  # until its window is full
    desk.open("b", 2, prompt=(2,) * 100, max_tokens=20)
    assert [desk.round() for _ in range(9)] == [[]] * 9, "the pages do not suffice for both"
    desk.now += GONE_S + 0.1
    assert [message.session_id for _ in range(9) for message in desk.round()][:1] == [session_id(2)]
    assert session_id(1) in desk.core.sessions
