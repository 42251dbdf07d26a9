"""From verdict to verdict: by hand, and what drafting ahead of verdicts does to the choice of lengths."""

import numpy as np
import pytest

from goodspeed.errors import ConfigError
from goodspeed.fair.latency import Linear
from goodspeed.fair.policies import ClientState, create
from goodspeed.fair.policies.cycles import Cycles, Timing, in_time, willing

ROUND_S = 0.01


def seconds(length, *, alpha=0.9, draft_s=0.001, trip_s=0.02, ahead=1.0, num_clients=1):
    timing = Timing(*(np.full(num_clients, value) for value in (draft_s, trip_s + draft_s, 0.0, ahead)))
    owner = np.arange(num_clients)
    cycles = Cycles(timing, np.full(num_clients, np.log(alpha)), owner, np.full(num_clients, length))
    return float(cycles.seconds(slice(None), ROUND_S)[0])


def test_without_a_draft_it_is_a_round():
    assert seconds(0) == pytest.approx(ROUND_S)
    assert seconds(0, num_clients=4) == pytest.approx(ROUND_S)


def test_a_draft_made_afresh_takes_the_way_its_drafting_and_half_a_round_where_there_are_others():
    assert seconds(4, ahead=0.0) == pytest.approx(0.01 + 0.02 + 0.005)
    assert seconds(4, ahead=0.0, num_clients=2) == pytest.approx(0.01 + 0.025 + 0.5 * 0.005)
    assert seconds(1, ahead=0.0, num_clients=2, trip_s=0.0) == pytest.approx(0.01 + 0.002 + 0.5 * 0.008)


def test_drafts_made_ahead_by_hand():
    """Ahead takes 6 ms of a round of 10, so it is there at once after a fresh draft, and later by the way there and
    back less what is left of the round after another one."""
    odds = 0.9**5
    assert willing(odds) == 1.0
    share = (1 - odds) / (1 - odds + odds)
    expected = 0.01 + share * 0.025 + share * odds * 0.0 + (1 - share) * odds * (0.02 + 0.006 - 0.01)
    assert seconds(4) == pytest.approx(expected)
    assert seconds(4, ahead=0.5) > seconds(4)


def test_what_is_not_done_when_the_verdict_comes_is_made_afresh():
    assert seconds(4, draft_s=0.01) == pytest.approx(seconds(4, draft_s=0.01, ahead=0.0))  # 60 ms in 30
    assert in_time(0.89, 1.0) == 1.0
    assert in_time(1.0, 1.0) == 0.5
    assert in_time(1.11, 1.0) == 0.0


def test_what_seldom_comes_true_is_not_drafted_ahead():
    assert seconds(4, alpha=0.7) == pytest.approx(seconds(4, alpha=0.7, ahead=0.0))  # 0.17 of the verdicts


def test_lengths_keep_to_what_is_made_in_time():
    """The embedded models at a millisecond's distance. Simulated, with 1 to 8 tokens at alpha 0.95: 237, 309, 337, 234,
    248, 250, 264 (8 tokens): from four on nothing is made ahead in time, with three it is a matter of 3 %."""
    cost = Linear(fixed_s=0.007, token_s=0.00032)
    ahead, afresh = (
        create("gradient", cost=cost).allocate(
            [ClientState(0.95, 1.0, draft_s_per_token=0.0018, round_trip_s=0.0028, ahead=share)], 24
        )
        for share in (1.0, 0.0)
    )
    assert ahead == [2]
    assert afresh[0] > 8


def test_far_clients_draft_where_drafting_ahead_hides_the_way():
    cost = Linear(fixed_s=0.0065, token_s=0.00032, session_s=0.0005)
    far = [ClientState(0.95, 1.0, draft_s_per_token=0.0018, round_trip_s=0.0418, ahead=1.0) for _ in range(16)]
    assert min(create("gradient", cost=cost).allocate(far, 256)) > 0


def test_a_share_out_of_range_is_named():
    with pytest.raises(ConfigError, match=r"ahead is 1\.5 for client 0; it must be within 0 and 1"):
        create("gradient", cost=Linear(fixed_s=0.01)).allocate([ClientState(0.5, 1.0, ahead=1.5)], 4)
