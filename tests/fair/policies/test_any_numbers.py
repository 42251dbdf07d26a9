"""Whatever was learned of clients, Eq. (5) keeps to its bounds, without a warning."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodspeed.fair.policies import ClientState, create

CLIENTS = st.builds(
    ClientState,
    st.sampled_from([0.0, 1e-300, 1e-9, 0.3, 1.0 - 1e-12, 1.0]),
    st.sampled_from([1e-300, 1e-9, 0.02, 3.0, 1e9]),
    st.sampled_from([0.0, 5e-324, 1.0, 1000.0]),
    st.integers(0, 12),
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
    st.lists(CLIENTS, min_size=1, max_size=6),
    st.integers(0, 40),
)
@pytest.mark.filterwarnings("error")
def test_lengths_are_within_bounds_whatever_was_learned(fairness, clients, budget):
    lengths = create("gradient", fairness=fairness).allocate(clients, budget)
    assert all(0 <= length <= client.max_length for length, client in zip(lengths, clients, strict=True))
    assert sum(lengths) <= budget
