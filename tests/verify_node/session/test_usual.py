"""What all clients' drafts were worth is expected of a new client's."""

from goodspeed.fair.policies import create
from verify_node.scheduler.allocate import Allocator

SURE = bytes([0])


def allocator() -> Allocator:
    return Allocator(create("gradient"), 24, eta=0.1, beta=0.1)


def test_a_new_clients_claims_are_as_right_as_others_were() -> None:
    known = allocator()
    old, new = known.client("old"), known.client("new")
    for _ in range(50):
        old.calibration("ngram").observe(SURE, 0)
    [wrong], [other] = (new.calibration(kind).probabilities(SURE) for kind in ("ngram", "model"))
    assert wrong < 0.3
    assert other > 0.9  # of another source nothing was seen
    for _ in range(50):
        new.calibration("ngram").observe(SURE, 1)
    assert new.calibration("ngram").probabilities(SURE)[0] > 0.9  # its own evidence counts more


def test_waiting_for_a_new_client_gains_what_it_gained_with_others() -> None:
    known = allocator()
    old, new = known.client("old"), known.client("new")
    first = new.answer_gain.tokens
    for _ in range(50):
        old.observe_answer(0, in_time=True)
        old.observe_answer(0, in_time=False)
    assert new.answer_gain.tokens < 0.2 * first
    assert not new.answer_gain.is_known
    for _ in range(50):
        new.observe_answer(3, in_time=True)
        new.observe_answer(0, in_time=False)
    assert new.answer_gain.tokens > 2.0
