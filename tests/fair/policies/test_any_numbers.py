"""Whatever was learned of clients and rounds, a policy that knows time keeps to its bounds, without a warning."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodspeed.fair.latency import Linear, Refined
from goodspeed.fair.policies import ClientState, create

TIMES = st.sampled_from([0.0, 1e-300, 1e-9, 0.02, 1e6])
CLIENTS = st.builds(
    ClientState,
    st.sampled_from([0.0, 1e-300, 1e-9, 0.3, 1.0 - 1e-12, 1.0]),
    st.sampled_from([1e-300, 1e-9, 0.02, 3.0, 1e9]),
    st.sampled_from([0.0, 5e-324, 1.0, 1000.0]),
    st.integers(0, 12),
    draft_s_per_token=TIMES,
    round_trip_s=TIMES,
    context_len=st.integers(0, 10**6),
    ahead=st.sampled_from([0.0, 0.5, 1.0]),
    slo=st.sampled_from([None, 0.0, 1.0, 30.0, 1e9]),
)
COSTS = [Refined(), Refined(Linear()), Refined(Linear(fixed_s=1e-3, token_s=1e-4)), Refined(Linear(token_s=1e5))]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["gradient", "slo"]),
    st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
    st.booleans(),
    st.sampled_from(COSTS),
    st.lists(CLIENTS, min_size=1, max_size=6),
    st.integers(0, 40),
)
@pytest.mark.filterwarnings("error")
def test_lengths_are_within_bounds_whatever_was_learned(name, fairness, barrier, cost, clients, budget):
    lengths = create(name, fairness=fairness, cost=cost, barrier=barrier).allocate(clients, budget)
    assert all(0 <= length <= client.max_length for length, client in zip(lengths, clients, strict=True))
    assert sum(lengths) <= budget
