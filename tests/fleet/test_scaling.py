"""A fleet grows when it has been full for a while, and shrinks when the rest could long have held all."""

import pytest

from goodspeed.errors import ConfigError
from goodspeed.fleet.replicas import MAX_REPLICAS, Load
from goodspeed.fleet.scaling import DOWN_AFTER_S, UP_AFTER_S, Limits, Scaler, fullness, wanted

LIMITS = Limits(fewest=1, most=4)


def load(num_sessions: int, free_pages: int = 100, round_s: float = 0.0) -> Load:
    return Load(0.0, num_sessions=num_sessions, max_sessions=10, num_pages=100, free_pages=free_pages, round_s=round_s)


def test_a_replica_is_full_by_what_it_is_shortest_of() -> None:
    assert fullness(load(3), LIMITS) == 0.3
    assert fullness(load(3, free_pages=40), LIMITS) == pytest.approx(0.6)
    timed = Limits(1, 4, full_round_s=0.1)
    assert fullness(load(3, round_s=0.09), timed) == pytest.approx(0.9)
    assert fullness(load(0, round_s=0.09), timed) == 0.0  # the last round is long ago
    assert fullness(Load(0.0), LIMITS) == 0.0


@pytest.mark.parametrize(
    ("sessions", "number"),
    [
        ([0], 1),
        ([8], 1),
        ([9], 2),
        ([9, 8], 3),
        ([10, 10], 3),
        ([10, 10, 10, 10], 4),  # no more are allowed
        ([5, 0], 1),
        ([5, 1], 2),
        ([5, 5, 0], 2),
        ([0, 0, 0, 0], 3),  # one goes at a time
        ([9, 0], 2),  # the other has room
    ],
)
def test_loads_ask_for_a_number_of_replicas(sessions: list[int], number: int) -> None:
    assert wanted([load(one) for one in sessions], LIMITS) == number


@pytest.mark.parametrize("num", range(1, 5))
@pytest.mark.parametrize("total", range(41))
def test_what_has_just_grown_is_not_asked_to_shrink_and_the_other_way_round(num: int, total: int) -> None:
    if total > 10 * num:
        return
    asked = wanted([load(min(10, max(0, total - 10 * n))) for n in range(num)], LIMITS)
    share, rest = divmod(total, asked)
    spread = [load(share + (n < rest)) for n in range(asked)]
    if asked > num:
        assert wanted(spread, LIMITS) >= asked
    elif asked < num:
        assert wanted(spread, LIMITS) <= asked


def test_limits_hold() -> None:
    assert wanted([load(0), load(0)], Limits(2, 4)) == 2
    assert wanted([], LIMITS) == 1
    for fewest, most in ((0, 1), (2, 1), (1, MAX_REPLICAS + 1)):
        with pytest.raises(ConfigError, match="--max-replicas not below --replicas"):
            Limits(fewest, most)


def test_it_takes_time_without_a_break() -> None:
    scaler, full, half = Scaler(LIMITS), [load(10)], [load(6)]
    assert scaler.decide(full, 0.0) == 1
    assert scaler.decide(full, UP_AFTER_S - 1) == 1
    assert scaler.decide(half, UP_AFTER_S - 0.5) == 1  # a break
    assert scaler.decide(full, UP_AFTER_S) == 1
    assert scaler.decide(full, 2 * UP_AFTER_S - 0.1) == 1
    assert scaler.decide(full, 2 * UP_AFTER_S) == 2


def test_it_shrinks_later_than_it_grows() -> None:
    scaler, idle = Scaler(LIMITS), [load(0), load(0)]
    assert scaler.decide(idle, 0.0) == 2
    assert scaler.decide(idle, UP_AFTER_S + 1) == 2
    assert scaler.decide(idle, DOWN_AFTER_S) == 1
    assert scaler.decide(idle, DOWN_AFTER_S + 1) == 2  # from anew: the first has to be gone
