"""A run's time and tokens, counted by hand."""

from math import fsum, log

import numpy as np
import pytest

from experiments.simulation.accounts import Accounts, Run, Seen, expected_tokens, interval, log_utility
from experiments.simulation.nodes.surroundings import Finished
from goodspeed.wire.messages import Verdict
from verify_node.scheduler.round import Round

A, B = b"a" * 16, b"b" * 16


def verdict(session_id, num_tokens):
    return Verdict(session_id, 1, 0, (1,) * num_tokens, num_tokens, num_tokens - 1, 3)


def test_wall_time_is_split_by_hand():
    """A wait of 1 s, a round of 2, sending 0.25; a wait of 3 that begins with that, a round of 1, sending 0.5."""
    accounts = Accounts()
    accounts.note(Finished(Round(1, ()), 1.0, 1.0, 2.0, (verdict(A, 3), verdict(B, 1)), 0.25))
    accounts.note(Finished(Round(2, ()), 6.0, 3.0, 1.0, (verdict(A, 2),), 0.5, work_s=0.125))
    assert (accounts.receive_s, accounts.verify_s, accounts.send_s) == (1.0 + 2.75, 3.0, 0.75)
    assert accounts.wall_s == 7.5
    assert accounts.num_rounds == 2
    assert accounts.verdicts == {A: [Seen(3.0, 3, 1), Seen(7.125, 2, 2)], B: [Seen(3.0, 1, 1)]}
    both = Run(accounts, ((A,), (B,)), (7.0, 3.0))
    assert both.goodputs == [2.5, 1.0]
    assert both.speeds == [5 / 7, 1 / 3]
    assert (both.num_tokens, both.tokens_per_s) == (6, 6 / 7)
    assert (both.gaps(0), both.gaps(1)) == ([(4.125, 2)], [])


def test_measures_of_fairness_and_chance():
    assert log_utility([2.0, 3.0]) == pytest.approx(log(6.0))
    mean, half = interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.302653 / 3**0.5))  # t of two degrees of freedom, at 97.5 %


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0 - 1e-8, 1.0 - 1e-16, 1.0])
def test_the_expected_tokens_of_a_draft_are_the_sum_of_the_survivals(alpha: float) -> None:
    found = expected_tokens(alpha, np.arange(30))
    assert found == pytest.approx([fsum(alpha**s for s in range(length + 1)) for length in range(30)], rel=1e-12)
    assert expected_tokens(alpha, 20) == found[20]
