"""Every policy keeps the same laws; a wrong name or option is refused."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from goodspeed.errors import ConfigError, UnknownPolicyError
from goodspeed.fair.policies import ClientState, create, names

states = st.builds(
    ClientState,
    acceptance_rate=st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1e-300, 1e-9, 0.5, 1.0 - 1e-12, 1.0])),
    goodput=st.one_of(st.floats(1e-6, 1e3), st.sampled_from([1e-300, 1e-9, 1e9])),
    weight=st.one_of(st.just(1.0), st.floats(0, 100), st.sampled_from([5e-324, 1000.0])),
    max_length=st.one_of(st.integers(0, 12), st.just(10**30)),
)
OPTIONS: list[tuple[str, dict[str, float]]] = [(name, {}) for name in names()]
OPTIONS += [("gradient", {"fairness": fairness}) for fairness in (30.0, 1000.0)]


@pytest.mark.parametrize(("name", "own"), OPTIONS)
@given(clients=st.lists(states, max_size=12), budgets=st.lists(st.integers(0, 60), min_size=1, max_size=4))
@example(clients=[], budgets=[10])
@example(clients=[ClientState(0.5, 1.0)] * 3, budgets=[0])
def test_no_policy_exceeds_the_budget_or_a_max_length(name, own, clients, budgets):
    policy = create(name, **own)
    for budget in budgets:
        lengths = policy.allocate(clients, budget)
        assert [type(one) for one in (lengths, *lengths)] == [list, *[int] * len(clients)]
        assert all(0 <= n <= client.max_length for n, client in zip(lengths, clients, strict=True))
        assert sum(lengths) <= budget


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("budget", [-1, 2.5, math.nan, "8", None, True, 2**60])
def test_a_budget_that_is_none_is_refused(name, budget):
    with pytest.raises(ConfigError, match="budget"):
        create(name).allocate([ClientState(0.5, 1.0)], budget)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("max_length", [-1, 2.5, math.nan, "8", None])
def test_a_max_length_that_is_none_is_refused(name, max_length):
    with pytest.raises(ConfigError, match="max_length"):
        create(name).allocate([ClientState(0.5, 1.0, max_length=max_length)], 8)


def test_an_unknown_policy_or_option_is_refused_with_those_there_are():
    with pytest.raises(UnknownPolicyError, match=r"'gradiant'.*fixed, gradient, random, throughput; or .*MODULE:CLASS"):
        create("gradiant")
    with pytest.raises(ConfigError, match=r"'fairnes'.*fairness"):
        create("gradient", fairnes=2.0)
    with pytest.raises(ConfigError, match=r"'seed'.*no options"):
        create("fixed", seed=1)


WRONG = [("random", "seed", value) for value in (-1, 1.5, "1", None, True)]
WRONG += [("gradient", "fairness", value) for value in (-0.1, math.nan, math.inf, "1", None)]


@pytest.mark.parametrize(("name", "option", "value"), WRONG)
def test_an_option_out_of_range_is_refused(name, option, value):
    with pytest.raises(ConfigError, match=option):
        create(name, **{option: value})
