"""The draft model is left alone after each failure, longer each time, and while a step takes too long."""

from itertools import pairwise

from draft_node.model.circuit_breaker import MAX_OPEN_S, OPEN_S, CircuitBreaker


def test_after_each_failure_in_a_row_it_rests_for_longer():
    breaker, now, ends = CircuitBreaker(), 0.0, [0.0]
    for _ in range(5):
        breaker.begin(now)
        breaker.failed(now)
        while breaker.is_open(now):
            now += 0.5
        ends.append(now)
    rests = [after - before for before, after in pairwise(ends)]
    assert rests == [OPEN_S, 2 * OPEN_S, 4 * OPEN_S, MAX_OPEN_S, MAX_OPEN_S]
    breaker.worked()
    breaker.failed(now)
    assert breaker.is_open(now + OPEN_S - 0.1)
    assert not breaker.is_open(now + OPEN_S)
    assert breaker.num_failures == 6


def test_it_survives_failures_for_days():
    breaker = CircuitBreaker()
    for number in range(2000):
        breaker.failed(number * MAX_OPEN_S)
    assert breaker.is_open(2000 * MAX_OPEN_S - 0.1)
    assert not breaker.is_open(2000 * MAX_OPEN_S)
