"""The verify node counts tokens, drafts, positions, preemptions and failures, and remembers events of clients."""

import pytest

from goodspeed.wire.handshake import Leave
from tests.fakes import Desk
from verify_node.core.client_events import MAX_REFUSALS, MAX_VISITS, ClientEvents
from verify_node.session.session import MAX_RETURNS


@pytest.fixture
def desk():
    """Session 1 of client a has had its first verdict and may draft."""
    desk = Desk("a")
    desk.begin()
    return desk


def test_a_first_token_a_draft_accepted_whole_and_one_in_part(desk):
    counts, client = desk.core.counts, desk.session().client
    assert (counts.num_prompt_tokens, counts.num_tokens, counts.num_drafts) == (3, 1, 0)
    assert counts.round_tokens.total == 3
    assert counts.round_s.total == pytest.approx(0.01)
    desk.draft()
    desk.round()
    assert (counts.num_prompt_tokens, counts.num_tokens) == (3, 10)
    assert (counts.num_drafts, counts.num_drafted, counts.num_accepted) == (1, 8, 8)
    desk.draft(tokens=(*desk.honest_draft().tokens[:1], 0, 0))
    desk.round()
    assert (counts.num_drafts, counts.num_drafted, counts.num_accepted) == (2, 11, 9)
    assert counts.accepted_by_position() == [2, 1, 1, 1, 1, 1, 1, 1]
    assert (client.num_tokens, client.num_drafted, client.num_accepted) == (12, 11, 9)


@pytest.mark.parametrize("keeps", [False, True], ids=["lost verdicts", "kept tokens"])
def test_what_a_session_opened_again_brings_or_lost_on_its_way_counts_once(desk, keeps):
    """keeps: its draft node has the first tokens; else it asks for them again."""
    counts, text = desk.core.counts, desk.text()
    desk.draft()
    desk.round()
    assert (counts.num_prompt_tokens, counts.num_tokens) == (3, 10)
    for epoch in range(2, MAX_RETURNS + 4):
        desk.begin(epoch=epoch, committed=text if keeps else ())
        assert desk.text()[:1] == text
        assert (counts.num_prompt_tokens, counts.num_tokens) == (3, 10)
    while not desk.session().finished:
        desk.draft()
        desk.round()
    assert counts.num_prompt_tokens == 3
    assert counts.num_tokens == desk.session().client.num_tokens == len(desk.text())


def test_a_client_that_says_goodbye_has_left_and_is_not_missed_also_after_it_was_lost():
    desk = Desk("a")
    desk.now = 1.0
    assert desk.up("a", Leave()) == []
    desk.now = 100.0
    desk.core.tick(desk.now)
    told = [(entry.kind, entry.client) for entry in desk.core.client_events.newest_first()]
    assert told == [("left", "a"), ("joined", "a")]
    assert desk.core.client_events.losses_since(0.0) == []
    client_events = ClientEvents()
    client_events.visit("lost", "a", "", 1.0)
    assert [entry.at for entry in client_events.losses_since(0.0)] == [1.0]
    client_events.visit("joined", "a", "", 2.0)
    client_events.visit("left", "a", "", 3.0)
    assert client_events.losses_since(0.0) == []


def test_refusals_push_nobody_out():
    client_events = ClientEvents()
    client_events.visit("lost", "a", "", 1.0)
    for number in range(2 * MAX_VISITS):
        client_events.refused("b", f"code-{number}", 2.0 + number, why="another release")
    assert [entry.client for entry in client_events.losses_since(0.0)] == ["a"]
    assert client_events.losses_since(2.0) == []
    assert len(client_events) == 2 * (1 + MAX_REFUSALS)
    news = client_events.take_news()
    assert (len(news), news[0].client) == (1 + MAX_REFUSALS, "a")
    assert len(client_events) == 1 + MAX_REFUSALS
    for number in range(2 * MAX_VISITS):
        client_events.refused(f"c{number}", "too_many_sessions", 2.0 + MAX_VISITS + number)
    client_events.refused("b", f"code-{2 * MAX_VISITS - 1}", 3000.0, why="another release")
    assert client_events.newest_first()[0].num_times == 2, "ordinary refusals do not push it out"
    assert client_events.take_news() == []
    client_events.refused("late", "too_many_sessions", 4000.0)
    shown = client_events.newest_first(40)
    assert (len(shown), sum(bool(event.why) for event in shown), shown[0].client) == (40, 20, "late")
