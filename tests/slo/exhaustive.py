"""All sets of asks that can be kept, by the definition alone: no code of the room is used, and nothing is pruned."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from goodspeed.slo.admit import Ask

SLACK = 1e-6
TokensIn = Callable[[float], float]
Places = tuple[int, ...]


def prefill_budget(seconds: float, decoding: Counter[float], tokens_in: TokensIn) -> float:
    """PB*(t, n) = (t / T*) tokens_in(T*) - sum n t / tau."""
    if not decoding or not seconds:
        return tokens_in(seconds) if seconds else 0.0
    tightest_s = min(decoding)
    tokens = seconds / tightest_s * tokens_in(tightest_s)
    return tokens - sum(number * seconds / tpot_s for tpot_s, number in decoding.items())


def can_decode(decoding: Counter[float], tokens_in: TokensIn) -> bool:
    """True if it is sustainable for ever."""
    if not decoding:
        return True
    load = sum(number / tpot_s for tpot_s, number in decoding.items())
    return tokens_in(min(decoding)) / min(decoding) >= load * (1 - SLACK)


def kept_sets(asks: Sequence[Ask], decoding: Sequence[float], tokens_in: TokensIn, pages: float) -> Iterator[Places]:
    """The places of every set that can be kept, with all promised ones in it.

    An ask that cannot be kept after some others cannot be after these and further ones, either; so that branch ends.
    """
    order = sorted(range(len(asks)), key=lambda place: asks[place].deadline_s)

    def further(taken: Places, rest: list[int], at_s, left, now: Counter[float], free) -> Iterator[Places]:
        if not any(asks[place].promised for place in rest):
            yield taken
        for index, place in enumerate(rest):
            ask = asks[place]
            budget = left + prefill_budget(ask.deadline_s - at_s, now, tokens_in) - ask.prompt_tokens
            joined = now + Counter([ask.tpot_s] if ask.tpot_s is not None else [])
            if ask.deadline_s >= 0 and ask.pages <= free and budget >= -SLACK and can_decode(joined, tokens_in):
                where = ask.deadline_s, budget, joined, free - ask.pages
                yield from further((*taken, place), rest[index + 1 :], *where)
            if ask.promised:
                break  # nothing skips it

    running = Counter(decoding)
    if can_decode(running, tokens_in):
        yield from further((), order, 0.0, 0.0, running, pages)
