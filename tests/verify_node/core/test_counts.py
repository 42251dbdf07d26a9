"""The verify node counts tokens, drafts, positions, preemptions, repetitions and failures. By hand."""

import pytest

from tests.fakes import Desk


@pytest.fixture
def desk():
    """Session 1 of client a has had its first verdict and may draft."""
    desk = Desk("a")
    desk.begin()
    return desk


def test_a_first_token(desk):
    counts = desk.core.counts
    assert (counts.num_prompt_tokens, counts.num_tokens, counts.num_drafts) == (3, 1, 0)
    assert counts.round_tokens.total == 3
    assert counts.round_s.total == pytest.approx(0.01)


def test_a_draft_accepted_whole_and_one_in_part(desk):
    counts, client = desk.core.counts, desk.session().client
    desk.draft()
    desk.round()
    assert (counts.num_prompt_tokens, counts.num_tokens) == (3, 10)
    assert (counts.num_drafts, counts.num_drafted, counts.num_accepted) == (1, 8, 8)
    desk.draft(tokens=(*desk.honest_draft().tokens[:1], 0, 0))
    desk.round()
    assert (counts.num_drafts, counts.num_drafted, counts.num_accepted) == (2, 11, 9)
    assert counts.accepted_by_position() == [2, 1, 1, 1, 1, 1, 1, 1]
    assert (client.num_tokens, client.num_drafted, client.num_accepted) == (12, 11, 9)


def test_rounds_right_after_a_wrong_token_and_those_of_them_without_a_draft(desk):
    counts = desk.core.counts
    desk.draft(tokens=(*desk.honest_draft().tokens[:1], 0, 0))
    desk.round()
    assert (counts.num_after_wrong, counts.num_empty_after_wrong) == (0, 0), "the next round is the one that counts"
    desk.draft(tokens=())
    desk.round()
    assert (counts.num_after_wrong, counts.num_empty_after_wrong) == (1, 1)
    desk.draft(tokens=(0,))
    desk.round()
    assert counts.num_after_wrong == 1, "a round without a draft has no wrong token"
    desk.draft()
    desk.round()
    assert (counts.num_after_wrong, counts.num_empty_after_wrong) == (2, 1)
    desk.draft()
    desk.round()
    assert counts.num_after_wrong == 2, "all was right"


def test_a_session_opened_again_brings_its_prompt_once(desk):
    text = desk.text()
    desk.begin(epoch=2, committed=text)
    assert desk.core.counts.num_prompt_tokens == 3
