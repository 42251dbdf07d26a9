"""The interface of policies, and the checks of what they get."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from goodspeed.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_LIMIT = 1 << 40
MAX_BUDGET = NO_LIMIT  # larger budgets are refused, so that sums over a million clients stay exact
MAX_FAIRNESS = 1000.0


@dataclass(slots=True)
class ClientState:
    """One active session as a policy sees it; goodput and weight belong to its client."""

    acceptance_rate: float  # alpha, 0..1
    goodput: float  # X, tokens per verify round, > 0
    weight: float = 1.0  # >= 0; 0: requests nothing
    max_length: int = NO_LIMIT  # longest draft that this session may have
    client_id: str = ""
    survival: tuple[float, ...] | None = None  # P(the first s drafted tokens are all accepted), s = 1, 2, ...
    draft_s_per_token: float = 0.0  # of its draft node
    round_trip_s: float = 0.0  # from a verdict to the next draft, without the time to draft its tokens
    context_len: int = 0  # tokens of its text, with the prompt
    slo: float | None = None  # unused here, for callers that rely on the field; selection handles SLOs


class Policy(Protocol):
    """Divides a budget of drafted tokens among clients.

    An attribute `fairness` (1.0 without one) is the exponent of its utility, U' = X^-fairness: rounds select drafted
    tokens by w U'(X), so 0 values all clients' tokens alike.
    """

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        """Returns each client's next draft length: at most its max_length, and at most `budget` in total."""
        ...


def max_lengths(clients: Sequence[ClientState], budget: int) -> Ints:
    """Returns the clients' max_length as an array [clients]. Raises ConfigError for a value that is no whole number."""
    check_budget(budget)
    try:
        return np.array([min(index(client.max_length), NO_LIMIT) for client in clients], dtype=np.int64)
    except (TypeError, OverflowError) as error:
        raise ConfigError(f"max_length of a client must be a whole number, 0 or more: {error}") from None


def check_budget(budget: int) -> None:
    """Raises ConfigError unless the budget is a whole number from 0 to MAX_BUDGET."""
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or not 0 <= budget <= MAX_BUDGET:
        raise ConfigError(f"the budget is {budget!r}; it must be a whole number of tokens, 0 or more")


def within_budget(caps: Ints, budget: int) -> Ints:
    """Returns caps limited to the budget. Raises ConfigError for a negative cap."""
    if caps.size and caps.min() < 0:
        raise ConfigError(f"max_length is {caps.min()} for a client; it must be 0 or more")
    return np.minimum(caps, budget)


def check_values(name: str, values: Floats, right: NDArray[np.bool_], wanted: str) -> None:
    """Raises ConfigError for the first value where `right` is False; names the value and its client."""
    if not right.all():
        client = int(np.argmin(right))
        raise ConfigError(f"{name} is {values[client]} for client {client}; it must be {wanted}")


def check_fairness(fairness: float) -> float:
    """Returns the fairness as a float. Raises ConfigError unless it lies within 0 and MAX_FAIRNESS."""
    if not isinstance(fairness, int | float) or not 0.0 <= fairness <= MAX_FAIRNESS:
        raise ConfigError(f"fairness is {fairness!r}; it must lie within 0 (total goodput) and {MAX_FAIRNESS:g}")
    return float(fairness)
