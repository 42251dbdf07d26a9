"""The largest whole number that fits, found from a guess."""

from collections.abc import Callable


def largest(fits: Callable[[int], bool], near: float, most: int) -> int:
    """Returns the largest number from 0 to `most` that fits, 0 if none does; what is smaller than one that fits, fits.

    near: a guess. A right one takes two calls; a wrong one, about twice as many as its error has binary digits.
    """
    guess, step = int(min(max(near, 0.0), most)), 1
    if fits(guess):
        low = guess
        while low + step <= most and fits(low + step):
            low += step
            step *= 2
        high = min(low + step, most + 1)
    else:
        high = guess
        while high > step and not fits(high - step):
            high -= step
            step *= 2
        low = max(high - step, 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
