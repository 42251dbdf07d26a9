"""A message is repeated not before its answer can be there, and less and less often."""

from dataclasses import replace

import pytest

from draft_node.core.session import RESEND_S, RetransmissionTimer
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.world import World


def test_the_answer_to_a_word_that_was_repeated_tells_nothing_and_the_silence_stays():
    timer = RetransmissionTimer()
    timer.said(0.0, is_timed=True)
    timer.again()
    timer.again()
    timer.answered(5.0)
    assert timer.answer_s == 0.0
    assert timer.said(5.0, is_timed=True) == 4.0
    timer.answered(5.5)
    assert timer.said(6.0, is_timed=True) == RESEND_S


def test_after_a_new_beginning_only_what_was_measured_counts():
    timer = RetransmissionTimer()
    timer.said(0.0, is_timed=True)
    timer.answered(1.5)
    timer.said(2.0, is_timed=True)
    timer.again()
    timer.begin()
    assert timer.silence_s == pytest.approx(3.0)


def test_copies_do_not_fill_a_narrow_line():
    """8,000 bytes a draft, 4,000 a second: after 1 s of silence each was repeated, and all took twice as long."""
    settings = Settings(
        num_clients=2, num_sessions=4, num_at_once=1, min_tokens=40, stops=0.0, policy="fixed", budget=16
    )
    settings = replace(settings, drafted_bytes=500.0, bytes_per_s=(4000.0,), **PAPER)
    world = World(1, settings)
    world.run(150.0)
    sessions = [generation.session for draft in world.drafts for generation in draft.done]
    num_rounds = sum(session.statistics.num_rounds for session in sessions)
    assert sum(session.statistics.num_resends for session in sessions) < num_rounds / 2
