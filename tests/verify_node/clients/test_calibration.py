"""The probabilities that a client claims: believed until a handful of tokens tell better, and never upside down."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.wire import probabilities
from verify_node.clients.calibration import BUCKETS, MEMORY, Calibration, TextBias

NINETY, HALF = probabilities.encode([0.9, 0.5])
SURE = 0


def test_a_claim_is_believed_until_tokens_tell_better():
    known = Calibration()
    assert known.probabilities(bytes([SURE, NINETY, HALF])) == pytest.approx([0.99, 0.9, 0.5], abs=0.05)
    for number in range(200):
        known.observe(bytes([NINETY]), number % 10 < 6)  # 60 % of them are accepted
    assert known.probabilities(bytes([NINETY])) == pytest.approx([0.6], abs=0.03)
    assert known.probabilities(bytes([HALF])) == pytest.approx([0.5], abs=0.05)


def test_nothing_is_known_after_a_rejection():
    """Of four drafted tokens the first was accepted and the second was not."""
    known = Calibration()
    known.observe(bytes([NINETY] * 4), 1)
    bucket = BUCKETS[NINETY]
    assert (known.tries[bucket], known.hits[bucket]) == pytest.approx((2.0, 1.0), rel=0.01)
    assert sum(known.tries) == known.tries[bucket]


def test_who_claims_certainty_for_wrong_tokens_is_believed_for_a_few():
    liar = Calibration()
    believed = []
    for _ in range(40):
        believed += liar.probabilities(bytes([SURE]))
        liar.observe(bytes([SURE]), 0)
    assert believed[0] > 0.95
    assert believed[4] < 0.6
    assert believed[36] < 0.15
    assert all(after < before for before, after in pairwise(believed))


def test_all_buckets_unlearn_wrong_claims_together():
    """One token in five is accepted, whatever is claimed. If each bucket unlearned alone, 0.42 would be believed."""
    known = Calibration()
    claims = probabilities.encode([0.99, 0.96, 0.92, 0.87, 0.82, 0.75, 0.65, 0.55])
    believed = []
    for number in range(160):
        code = claims[number % 8 :][:1]
        believed += known.probabilities(code)
        known.observe(code, int(number % 5 == 2))
    assert sum(believed) / len(believed) == pytest.approx(0.3, abs=0.05)


observations = st.lists(st.tuples(st.binary(min_size=1, max_size=8), st.integers(0, 8)), max_size=60)


@given(observations)
def test_they_are_probabilities_and_fall_with_the_claim(seen):
    known = Calibration()
    for codes, num_accepted in seen:
        known.observe(codes, min(num_accepted, len(codes)))
    found = known.probabilities(bytes(range(256)))
    assert all(0.0 < one <= 1.0 for one in found)
    assert all(after <= before + 1e-12 for before, after in pairwise(found))


def test_no_rounding_makes_certain_more_than_certain():
    known = Calibration()
    for _ in range(300):
        known.observe(bytes([SURE]), 1)
        assert known.probabilities(bytes([SURE])) <= [1.0]


def test_texts_change_and_old_tries_are_forgotten():
    known = Calibration()
    for _ in range(5000):
        known.observe(bytes([HALF]), 0)
    assert known.tries[BUCKETS[HALF]] <= MEMORY
    for _ in range(1000):
        known.observe(bytes([HALF]), 1)
    assert known.probabilities(bytes([HALF]))[0] > 0.8


def test_a_text_that_goes_otherwise_than_its_clients_others_is_expected_to_go_on_so():
    in_circles, better = TextBias(), TextBias()
    assert in_circles.corrected([0.9]) == [0.9]
    for _ in range(30):
        in_circles.observe([0.9, 0.9], 0)
    assert in_circles.corrected([0.9, 0.5]) == pytest.approx([0.27, 0.15], abs=0.02)
    for _ in range(40):
        better.observe([0.4], 1)
    assert better.corrected([0.4, 0.8]) == pytest.approx([0.65, 1.0], abs=0.02)


@given(st.lists(st.booleans(), max_size=300))
def test_a_text_as_usual_keeps_what_was_calibrated(wavers):
    """Outcomes as expected, in pairs of one right and one wrong token."""
    bias = TextBias()
    for first in wavers:
        bias.observe([0.5], int(first))
        bias.observe([0.5], int(not first))
        assert bias.corrected([0.5]) == [0.5]


def test_only_tokens_up_to_the_first_wrong_one_count_for_a_text():
    bias = TextBias()
    bias.observe([0.9, 0.8, 0.7], 1)
    assert (bias.hits, bias.expected) == pytest.approx((1.0, 1.7), rel=0.01)
    bias.observe([0.9, 0.8], 2)
    assert (bias.hits, bias.expected) == pytest.approx((3.0, 3.4), rel=0.01)
