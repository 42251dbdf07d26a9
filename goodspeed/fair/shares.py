"""Each client's part of a budget of drafted tokens, by weight."""

from collections.abc import Mapping


def shares(weights: Mapping[str, float], budget: int) -> dict[str, int]:
    """Returns the tokens of the budget that are each client's, by name.

    Each has one at least: where there are more clients than tokens, whoever needs them most goes first. Without any
    weight nobody has a part.
    """
    total = sum(weights.values())
    if not total:
        return dict.fromkeys(weights, 0)
    return {name: max(1, int(budget * weight / total)) for name, weight in weights.items()}
