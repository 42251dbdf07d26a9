"""Exponentially smoothed numbers that begin with their first value."""


def smoothed(known: float, value: float, step: float) -> float:
    """The average `known` after one more value; 0 means that there was none yet, and gives the value itself.

    step: the weight of the new value, between 0 and 1.
    """
    return known + (value - known) * (step if known else 1.0)
