"""Who is promised what it asks for, and who is served as well as it goes. Knows nothing about what rounds do then."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal, TypeAlias

from goodspeed.admission import Ask, admit
from goodspeed.admission.headroom import headroom_s
from verify_node.admission.book import Book, Request
from verify_node.admission.owing import NOBODY, CountedOn, ask, paces, shortest_s

Tier: TypeAlias = Literal["promised", "best_effort"]


def decide(
    book: Book,
    requests: Sequence[Request],
    now: float,
    *,
    tokens_in: Callable[[float], float],
    least_round_s: float = inf,
    counted_on: CountedOn = NOBODY,
    pool_pages: int | None = None,
    policy: str = "dp",
) -> list[Tier]:
    """What each request gets, so that it can be kept beside all that is promised already; the book stays as it is.

    now: when the next round can begin. tokens_in: tokens that a round of so many seconds carries for sure, that is by
    an upper quantile of its time (`CostModel.tokens_in`). least_round_s: as `shortest_s` has it; a first token is
    promised only if there is time for it and such a round. pool_pages: of memory, free or not; None for no bound.
    policy: see `goodspeed.admission.admit`, which says who is promised. counted_on: how those decode, also of the
    requests, whose drafts are counted on; none in the default, so that no promise hangs on a draft node.
    """
    shortest = shortest_s(book, least_round_s)  # another request's TPOT does not count: it may never be promised
    early_s = headroom_s(shortest)
    waiting = [one for one in book if one.prompt_left > 1]  # of others the last token at most is held
    new = [
        Ask(
            one.deadline - now - headroom_s(shortest, inf if one.tpot_s is None else one.tpot_s),
            one.prompt_tokens,
            one.tpot_s,
            one.pages,
            one.value,
            counted_on=counted_on.get(one.session_id),
        )
        for one in requests
    ]
    kept = admit(
        [ask(one, now, early_s, counted_on) for one in waiting] + new,
        decoding=paces((one for one in book if one.prompt_left <= 1), counted_on, now),
        tokens_in=tokens_in,
        pages=None if pool_pages is None else max(0, pool_pages - book.pages),
        policy=policy,
    )
    return ["promised" if is_kept else "best_effort" for is_kept in kept[len(waiting) :]]
