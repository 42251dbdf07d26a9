"""When the draft model is left alone: after each failure for longer, and while a step takes too long."""

from itertools import pairwise

from draft_node.core.session import MODEL_TIMEOUT_S
from draft_node.model.circuit_breaker import MAX_REST_S, REST_S, Rests


def test_a_model_that_works_never_rests():
    rests = Rests()
    for now in range(100):
        assert not rests.is_resting(now)
        rests.begin(now)
        assert rests.end(now + MODEL_TIMEOUT_S)
        rests.worked()
    assert rests.num_failures == 0


def test_after_each_failure_in_a_row_it_rests_for_longer():
    rests, now, ends = Rests(), 0.0, [0.0]
    for _ in range(5):
        rests.begin(now)
        rests.failed(now)
        while rests.is_resting(now):
            now += 0.5
        ends.append(now)
    assert [after - before for before, after in pairwise(ends)] == [
        REST_S,
        2 * REST_S,
        4 * REST_S,
        MAX_REST_S,
        MAX_REST_S,
    ]
    rests.worked()
    rests.failed(now)
    assert rests.is_resting(now + REST_S - 0.1)
    assert not rests.is_resting(now + REST_S)
    assert rests.num_failures == 6


def test_a_step_that_takes_too_long_is_waited_for_by_nobody():
    rests = Rests()
    rests.begin(1.0)
    assert not rests.is_resting(1.0 + MODEL_TIMEOUT_S)
    assert rests.is_resting(1.1 + MODEL_TIMEOUT_S)
    assert rests.is_resting(1000.0)  # it hangs
    assert not rests.end(1000.0)
    assert not rests.is_resting(1000.0)
